"""The headings of a page in Markdown, with the anchors that GitHub and mdBook make of them."""
import re


def headings(text):
    """Level, title, anchor and place of each heading outside of code."""
    counts = {}
    without_code = re.sub(r"^(```|~~~).*?^\1", lambda code: re.sub(r"[^\n]", " ", code[0]), text, flags=re.M | re.S)
    for found in re.finditer(r"^(#+) +(.*)$", without_code, re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[2]).strip()
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = counts[anchor] = counts.get(anchor, -1) + 1
        yield len(found[1]), title, f"{anchor}-{number}" if number else anchor, found.start()
