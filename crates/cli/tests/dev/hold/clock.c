/* Clocks of its own for a process that has this library in LD_PRELOAD: see clock.rs.
 *
 * Everybody who reads a clock does so by a function that the kernel maps into each process (the vDSO), the C library and
 * whoever does without it alike. Its first instructions are replaced by a leap to `told`, which asks the kernel by a system
 * call, and adds what the test has written in a file that both of them have mapped. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the leap is written for x86-64: write it for this processor"
#endif

/* What the test writes: three numbers of nanoseconds, of which the second one is parts of a million. */
struct setting {
    int64_t wall_ahead;
    int64_t boot_faster;
    int64_t boot_faster_since;
};

static const volatile struct setting *setting;

static const int64_t SECOND = 1000000000;

static long ask(clockid_t clock, struct timespec *at)
{
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(SYS_clock_gettime), "D"((long)clock), "S"(at)
                     : "rcx", "r11", "memory");
    return answer;
}

static int told(clockid_t clock, struct timespec *at)
{
    long answer = ask(clock, at);
    if (answer != 0)
        return (int)answer;
    int64_t now = at->tv_sec * SECOND + at->tv_nsec;
    if (clock == CLOCK_REALTIME)
        now += setting->wall_ahead;
    if (clock == CLOCK_BOOTTIME && now > setting->boot_faster_since)
        now += (now - setting->boot_faster_since) / 1000000 * setting->boot_faster;
    at->tv_sec = now / SECOND;
    at->tv_nsec = now % SECOND;
    return 0;
}

/* Whoever cannot have these clocks must not go on with others. */
static void refuse(const char *why)
{
    (void)!write(STDERR_FILENO, why, strlen(why));
    _exit(99);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WATCHBELL_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        refuse("WATCHBELL_TEST_CLOCK names no file with three numbers\n");
    setting = mapped;
    close(file);
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned char *function = vdso ? dlvsym(vdso, "__vdso_clock_gettime", "LINUX_2.6") : NULL;
    if (function == NULL)
        refuse("the kernel maps no function that reads a clock\n");
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t page = (uintptr_t)function / page_bytes * page_bytes;
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (mprotect((void *)page, 2 * page_bytes, all) != 0)
        refuse("the kernel lets nobody change how clocks are read\n");
    /* movabs $told, %rax; jmp *%rax */
    unsigned char leap[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void *to = (void *)told;
    memcpy(leap + 2, &to, sizeof to);
    memcpy(function, leap, sizeof leap);
}
