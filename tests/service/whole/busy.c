/* What the whole-rig tests run on a rig, as judge and as lanes.
   Every process dies of a kernel timer after LIFE seconds, whatever becomes of the test. Held devices are told by a
   lock (flock) on one file: whoever cannot take it saw a second holder, prints OVERLAP and exits 97. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/socket.h>
#define LIFE 300

static int take(const char *probe) {
  int fd = open(probe, O_RDONLY);
  if (fd < 0) { printf("no probe %s: %s\n", probe, strerror(errno)); fflush(stdout); _exit(96); }
  if (flock(fd, LOCK_EX | LOCK_NB)) { printf("OVERLAP: another holder is alive\n"); fflush(stdout); _exit(97); }
  return fd;
}
static double now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void nap(long ms) { struct timespec t = {ms / 1000, ms % 1000 * 1000000L}; while (nanosleep(&t, &t) && errno == EINTR); }

/* One timed run: spins as often as src/loops says and reports its own CPU time on descriptor 3. Where the probe is a
   folder each change has a lock of its own there, by the name that src/loops gives it; what has none takes none. */
static int work(const char *probe) {
  FILE *f = fopen("src/loops", "r"); long loops; char name[64] = "", own[4096];
  if (!f || fscanf(f, "%ld %63s", &loops, name) < 1) { printf("no loops\n"); return 1; }
  snprintf(own, sizeof own, "%s/%s", probe, name);
  if (access(probe, X_OK)) take(probe);
  else if (!access(own, R_OK)) take(own);
  double from = now(CLOCK_PROCESS_CPUTIME_ID);
  if (!loops) raise(SIGKILL); /* a change that ends itself */
  volatile unsigned long x = 1;
  for (long i = 0; i < loops * 1000; i++) x = x * 6364136223846793005ul + 1442695040888963407ul;
  dprintf(3, "%.9f\n", now(CLOCK_PROCESS_CPUTIME_ID) - from);
  return 0;
}
/* One try at something that a run may not do: says `reached` or `refused`. */
static int try(char **v) {
  int good = 0, fd; char text[256]; ssize_t n;
  errno = 0;
  if (!strcmp(v[2], "read")) { fd = open(v[3], O_RDONLY); good = fd >= 0 && read(fd, text, 1) >= 0; }
  else if (!strcmp(v[2], "write")) { fd = open(v[3], O_WRONLY | O_CREAT | O_APPEND, 0600); good = fd >= 0 && write(fd, v[4], strlen(v[4])) >= 0; }
  else if (!strcmp(v[2], "signal")) good = !kill(atoi(v[3]), 0);
  else if (!strcmp(v[2], "get")) { /* PORT PATH: reached means that it answers without a token */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(v[3])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(fd, (struct sockaddr *)&at, sizeof at)) {
      dprintf(fd, "GET %s HTTP/1.1\r\nhost: rig\r\nconnection: close\r\n\r\n", v[4]);
      n = read(fd, text, sizeof text - 1); text[n < 0 ? 0 : n] = 0;
      printf("answered %.12s\n", text);
      good = !strncmp(text, "HTTP/1.1 200", 12);
    }
  }
  printf("%s %s %s: %s\n", good ? "reached" : "refused", v[2], v[3], strerror(errno));
  return good;
}
int main(int c, char **v) {
  struct itimerspec life = {{0, 0}, {LIFE, 0}}; timer_t timer; struct sigevent event;
  memset(&event, 0, sizeof event); event.sigev_notify = SIGEV_SIGNAL; event.sigev_signo = SIGKILL;
  timer_create(CLOCK_BOOTTIME, &event, &timer); timer_settime(timer, 0, &life, 0);
  if (c >= 3 && !strcmp(v[1], "work")) return work(v[2]);
  if (c >= 5 && !strcmp(v[1], "hold")) { /* PROBE MS TAG: holds the device, and a child in a session of its own with it */
    take(v[2]);
    if (!fork()) { timer_create(CLOCK_BOOTTIME, &event, &timer); timer_settime(timer, 0, &life, 0); setsid(); for (;;) pause(); }
    printf("begun\n"); fflush(stdout);
    nap(atol(v[3]));
    printf("over\n");
    return 0;
  }
  if (c >= 4 && !strcmp(v[1], "under")) { /* PROBE COMMAND...: the command and all it leaves hold the lock */
    take(v[2]);
    execvp(v[3], v + 3);
    return 98;
  }
  if (c >= 2 && !strcmp(v[1], "spin")) for (;;);
  if (c >= 4 && !strcmp(v[1], "try")) return try(v);
  fprintf(stderr, "usage: busy work|hold|under|spin|try ...\n");
  return 2;
}
