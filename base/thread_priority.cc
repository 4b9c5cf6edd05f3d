#include "base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace runnel {
namespace {

constexpr int kNice = 10;

}  // namespace

void compute_behind_others() {
  const auto thread = static_cast<id_t>(gettid());
  // A process that was started with a lower priority keeps it: nobody may raise his own.
  if (getpriority(PRIO_PROCESS, thread) < kNice) setpriority(PRIO_PROCESS, thread, kNice);
}

}  // namespace runnel
