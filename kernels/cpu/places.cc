#include "kernels/cpu/places.h"

namespace runnel::cpu {

void Places::take(int count) {
  std::unique_lock lock(mutex_);
  const uint64_t number = asked_++;
  changed_.wait(lock, [&] { return served_ == number && free_ >= count; });
  free_ -= count;
  ++served_;
  if (asked_ != served_) changed_.notify_all();
}

void Places::give_back(int count) {
  std::lock_guard lock(mutex_);
  free_ += count;
  if (asked_ != served_) changed_.notify_all();
}

}  // namespace runnel::cpu
