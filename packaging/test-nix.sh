#!/bin/sh
# Evaluates flake.nix with a stand-in for nixpkgs, which only GitHub has: its syntax, and what it says of the package. It
# builds nothing.
#
#   packaging/test-nix.sh
#
# It needs nix-instantiate (Debian's nix-bin).
set -eu
cd "$(dirname "$0")/.."
nix-instantiate --eval --strict --json --expr '
let
  pkgs = {
    rustPlatform = { buildRustPackage = package: package; bindgenHook = "bindgen"; };
    cmake = "cmake"; git = "git"; pkg-config = "pkg-config"; lib.licenses.mit = "MIT";
  };
  nixpkgs.legacyPackages = { x86_64-linux = pkgs; aarch64-linux = pkgs; };
  package = (import '"$PWD"'/packaging/flake.nix).outputs { self = { }; inherit nixpkgs; };
in builtins.mapAttrs (system: of: {
  inherit (of.default) pname version;
  flags = of.default.env.RUSTFLAGS;
  lock = builtins.pathExists of.default.cargoLock.lockFile;
}) package.packages'
echo
