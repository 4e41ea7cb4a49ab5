/*
 * dirty MIB [MIB_PER_SECOND [SPIN]]: writes one word into every page of a buffer, forever, so that a live migration
 * has something to chase. The rate limits it (0: as fast as possible); SPIN burns that many turns per page, which makes
 * the dirtying CPU-bound, so that throttling the vCPU slows it down.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_until(double when)
{
	double left = when - now();

	if (left > 0) {
		struct timespec t = { (time_t)left, (long)((left - (time_t)left) * 1e9) };

		nanosleep(&t, NULL);
	}
}

int main(int argc, char **argv)
{
	const size_t page = 4096, mib = 1 << 20;
	size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 0) * mib;
	double rate = (argc > 2 ? strtod(argv[2], NULL) : 0) * mib;
	unsigned long spin = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	unsigned long value = 0;
	volatile unsigned long turns;
	char *buffer;

	if (size == 0) {
		fprintf(stderr, "usage: dirty MIB [MIB_PER_SECOND [SPIN]]\n");
		return 2;
	}
	buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED) {
		perror("dirty: mmap");
		return 1;
	}
	for (double start = now(), done = 0;; ) {
		for (size_t offset = 0; offset < size; offset += page) {
			for (turns = 0; turns < spin; turns++)
				;
			*(volatile unsigned long *)(buffer + offset) = ++value;
			done += page;
			if (rate > 0 && (offset + page) % mib == 0)
				sleep_until(start + done / rate);
		}
		if (now() - start > 5) {
			printf("dirty %.0f MiB/s\n", done / mib / (now() - start));
			fflush(stdout);
			start = now();
			done = 0;
		}
	}
}
