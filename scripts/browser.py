"""Chromium without a window, for the tests of pages (scripts/test-web, scripts/test-report)."""
import base64, json, os, pathlib, shutil, subprocess, sys, tempfile, time


def program():
    """Chromium's path. Without it, ends as a skipped test, or as a failed one if all must run."""
    found = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if not found:
        print("SKIPPED: no chromium; install it (apt-get install chromium)")
        sys.exit(1 if os.environ.get("TRIMWISE_REQUIRE_ALL") else 0)
    return found


def views():
    """Widths, and whether the colours are dark: each width and each theme once, or with PAGES=full all four."""
    return [(w, d) for w in (1280, 390) for d in (False, True) if os.environ.get("PAGES") == "full" or d == (w == 390)]


class Browser:
    """Chromium over its pipe: requests on descriptor 3, answers on 4, each ended by a zero byte."""

    def __init__(self, program, *flags):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--no-first-run", f"--user-data-dir={self.profile.name}", *flags]
        shell = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in), os.close(theirs_out)
        self.write, self.read = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb")
        self.number, self.rest, self.errors, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        self.write.write(json.dumps(request).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = self.read.read1(1 << 16)
                if not piece:
                    raise SystemExit("chromium ended")
                self.rest += piece
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            kind, about = answer.get("method"), answer.get("params", {})
            if kind == "Runtime.exceptionThrown":
                self.errors.append(str(about["exceptionDetails"]))
            if kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                self.errors.append(str(about["args"]))
            if kind == "Log.entryAdded" and about["entry"]["level"] == "error":
                self.errors.append(about["entry"]["text"])
            if kind == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
                self.errors.append("network: " + about["request"]["url"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition, what, seconds=300):
        """A limit against hanging, not a condition of speed."""
        end = time.monotonic() + seconds
        while not self.js(condition):
            if time.monotonic() > end:
                raise SystemExit(f"FAILED: {what}: not within {seconds} s; the page says: "
                                 + str(self.js("document.body.innerText.slice(0, 400)")))
            time.sleep(0.2)

    def open(self, page, width, dark=False, script=True):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=page)
        time.sleep(1)
        self.wait("document.readyState == 'complete' && !!document.body", f"{page} is loaded")

    def picture(self, path, beyond=True, **options):
        """Of the whole page, or of what is in view."""
        path = pathlib.Path(path)
        data = self.call("Page.captureScreenshot", captureBeyondViewport=beyond, format=path.suffix[1:], **options)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait()


def check(holds, what):
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        sys.exit(1)
