# corelane for Nix:
#
#   nix run "git+file:///path/to/corelane?dir=packaging" -- run "Once upon a time"
#   nix profile install "git+file:///path/to/corelane?dir=packaging"
{
  description = "Lock-free, thread-per-core HTTP server for GGUF models";

  # Rust 1.95 or later is in no older release.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      # The processor that the program needs, as in dist.sh.
      baselines = {
        x86_64-linux = "-C target-cpu=x86-64-v3";
        aarch64-linux = "-C target-cpu=neoverse-n1";
      };
      manifest = (builtins.fromTOML (builtins.readFile ../Cargo.toml)).package;
      package = system: baseline:
        let pkgs = nixpkgs.legacyPackages.${system};
        in pkgs.rustPlatform.buildRustPackage {
          pname = manifest.name;
          version = manifest.version;
          src = ../.;
          cargoLock.lockFile = ../Cargo.lock;
          nativeBuildInputs = [ pkgs.cmake pkgs.git pkgs.pkg-config pkgs.rustPlatform.bindgenHook ];
          # cmake is for llama.cpp, which its crate builds; there is no CMakeLists.txt of ours.
          dontUseCmakeConfigure = true;
          env.RUSTFLAGS = "${baseline} -C force-frame-pointers=yes";
          # The tests start servers and a browser: make test.
          doCheck = false;
          meta = {
            description = manifest.description;
            license = pkgs.lib.licenses.mit;
            mainProgram = "corelane";
            platforms = builtins.attrNames baselines;
          };
        };
    in {
      packages = builtins.mapAttrs (system: baseline: { default = package system baseline; }) baselines;
    };
}
