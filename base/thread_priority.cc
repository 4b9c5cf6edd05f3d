#include "base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace runnel {
namespace {

constexpr int kComputing = 10;
constexpr int kReading = 15;

void be_nice(int nice) {
  const auto thread = static_cast<id_t>(gettid());
  // A process that was started with a lower priority keeps it: no process may raise its own
  // priority.
  if (getpriority(PRIO_PROCESS, thread) < nice) setpriority(PRIO_PROCESS, thread, nice);
}

}  // namespace

void compute_behind_others() { be_nice(kComputing); }
void read_behind_others() { be_nice(kReading); }

}  // namespace runnel
