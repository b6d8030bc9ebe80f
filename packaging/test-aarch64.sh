#!/bin/sh
# Runs the program for ARM under qemu on another processor: a text in the terminal, and the official clients of the tests
# against its server. qemu knows no io_uring, so the sockets are read by epoll.
#
#   sudo packaging/test-aarch64.sh target/dist-aarch64 [TEST...]
#
# TEST are files of tests/python [default: those of OpenAI's and Ollama's APIs, of errors, tools, chats and metrics]. It
# needs what make e2e installs, qemu-user-static and Debian's libraries for ARM (libstdc++6-arm64-cross). It lets this
# machine's kernel start programs for ARM (binfmt_misc), because the server starts itself again to try a schema.
set -eu
dist=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- test_openai.py test_openai_chat.py test_openai_errors.py test_openai_tools.py test_ollama.py test_metrics.py test_chat.py
formats=/proc/sys/fs/binfmt_misc
if [ "$(uname -m)" != aarch64 ]; then
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
    # An ELF file of 64 bits for machine 183, as in linux/elf-em.h. F: the interpreter is found also in a chroot.
    [ -e $formats/corelane-aarch64 ] || printf '%s' ':corelane-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' > $formats/register
    trap 'echo -1 > $formats/corelane-aarch64' EXIT
    export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
fi

began=$(date +%s.%N)
answer=$("$dist/corelane" run --temp 0 "Once upon a time")
echo "$began $(date +%s.%N)" | awk '{printf "%.1f s to the first answer: ", $2 - $1}'
echo "$answer"
CORELANE_BINARY="$dist/corelane" target/venv/bin/python -m pytest -q $(printf "tests/python/%s " "$@")
