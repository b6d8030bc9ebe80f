// Says what is missing on a processor that this program is not built for, in place of an illegal instruction.
//
// llama.cpp's static constructors may already use AVX2, so this runs before all of them: the dynamic linker calls
// what stands in .preinit_array first. build.rs compiles it for the oldest x86-64, and only into programs that need
// x86-64-v3.

#include <cpuid.h>
#include <unistd.h>

static int has(unsigned word, int bit) { return word >> bit & 1; }

// Whether the processor and the kernel have all of x86-64-v3 that programs compiled for it use.
static int is_v3(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    int basic = has(c, 12) && has(c, 22) && has(c, 27) && has(c, 28) && has(c, 29); // FMA MOVBE OSXSAVE AVX F16C
    if (!basic || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    int integers = has(b, 3) && has(b, 5) && has(b, 8); // BMI1 AVX2 BMI2
    if (!integers || !__get_cpuid(0x80000001, &a, &b, &c, &d) || !has(c, 5)) return 0; // LZCNT
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6; // the kernel saves the registers of AVX
}

static void check(void) {
    static const char missing[] =
        "corelane: this program needs a processor with AVX2, FMA, F16C and BMI2 (x86-64-v3), and this one lacks some "
        "of them; built from source on this machine (make build), it runs here, too\n";
    if (!is_v3()) {
        ssize_t written = write(2, missing, sizeof missing - 1);
        _exit(written < 0 ? 2 : 1);
    }
}

__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = check;
