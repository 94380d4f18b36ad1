# trimwised as a NixOS service, in place of fstrim.timer:
#
#     imports = [ /path/to/trimwise/packaging/nix/module.nix ];
#     services.trimwised = {
#       enable = true;
#       settings.policy = "judicious";
#     };
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.trimwised;
  toml = pkgs.formats.toml { };
in
{
  options.services.trimwised = {
    enable = lib.mkEnableOption "trimwised, which decides when and what to trim on mounted file systems";
    package = lib.mkOption {
      type = lib.types.package;
      default = pkgs.callPackage ./package.nix { };
      defaultText = lib.literalExpression "pkgs.callPackage ./package.nix { }";
      description = "The package that has trimwised and its unit.";
    };
    settings = lib.mkOption {
      inherit (toml) type;
      default = { };
      example = {
        slice-ms = 50;
        mount."/scratch".policy = "commit";
      };
      description = "Keys of {file}`/etc/trimwise.toml`; packaging/trimwise.toml explains them.";
    };
  };

  config = lib.mkIf cfg.enable {
    # Both would trim the same free space.
    services.fstrim.enable = lib.mkDefault false;
    assertions = [
      {
        assertion = !config.services.fstrim.enable;
        message = "services.trimwised trims in place of services.fstrim; enable one of them.";
      }
    ];
    environment.systemPackages = [ cfg.package ];
    environment.etc."trimwise.toml".source = toml.generate "trimwise.toml" cfg.settings;
    systemd.packages = [ cfg.package ];
    systemd.services.trimwised = {
      wantedBy = [ "multi-user.target" ];
      # dmsetup says how full a thin pool is.
      path = [ pkgs.lvm2 ];
      # A reload would need /bin/kill, which is not there.
      restartTriggers = [ config.environment.etc."trimwise.toml".source ];
    };
  };
}
