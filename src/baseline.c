// Says what is missing on a processor that this program is not built for, in place of an illegal instruction.
//
// llama.cpp's static constructors may already use new instructions, so this runs before all of them: the dynamic
// linker calls what stands in .preinit_array first. build.rs compiles it for the oldest processors, and only into
// programs that need newer ones.

#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>

static int has(unsigned word, int bit) { return word >> bit & 1; }

// Whether the processor and the kernel have all of x86-64-v3 that programs compiled for it use.
static int has_all(void) {
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
#define NEEDED "AVX2, FMA, F16C and BMI2 (x86-64-v3)"

#else
#include <asm/hwcap.h>
#include <sys/auxv.h>

// Whether the processor has what packaging/aarch64.cmake asks for. The numbers are the kernel's.
static int has_all(void) {
    const unsigned long needed = HWCAP_ASIMDDP | HWCAP_ASIMDHP;
    return (getauxval(AT_HWCAP) & needed) == needed;
}
#define NEEDED "dot products and half floats (ARMv8.2)"
#endif

static void check(void) {
    static const char missing[] =
        "corelane: this program needs a processor with " NEEDED ", and this one lacks some of them; built from "
        "source on this machine (make build), it runs here, too\n";
    if (!has_all()) {
        ssize_t written = write(2, missing, sizeof missing - 1);
        _exit(written < 0 ? 2 : 1);
    }
}

__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = check;
