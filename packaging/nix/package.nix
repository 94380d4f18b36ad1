# trimwise for Nix. In a clone:
#
#     nix-build -E '(import <nixpkgs> { }).callPackage ./packaging/nix/package.nix { }'
{
  lib,
  rustPlatform,
  python3,
}:
rustPlatform.buildRustPackage {
  pname = "trimwise";
  version = (lib.importTOML ../../Cargo.toml).workspace.package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  nativeBuildInputs = [ python3 ];
  # The tests ask for more than a build has.
  doCheck = false;

  postPatch = ''
    patchShebangs scripts
  '';
  buildPhase = ''
    runHook preBuild
    scripts/build-tree
    runHook postBuild
  '';
  installPhase = ''
    runHook preInstall
    mkdir -p $out
    cp -r target/tree/usr/. target/tree/etc $out/
    substituteInPlace $out/lib/systemd/system/trimwised.service --replace-fail /usr/ $out/
    runHook postInstall
  '';

  meta = {
    description = "TRIM policies for SSDs: compared with numbers, and applied";
    # The patches for Linux in share/trimwise/kernel are under GPL-2.0-only.
    license = with lib.licenses; [
      mit
      asl20
      gpl2Only
    ];
    mainProgram = "trimwise";
    platforms = lib.platforms.linux;
  };
}
