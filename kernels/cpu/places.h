// The places of a pool of threads, given out in the order in which they are asked for: users of one
// pool that take a place for every thread they run never run more threads than it has, and a user
// waits only for users that asked earlier.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace runnel::cpu {

class Places {
 public:
  explicit Places(int count) : free_(count) {}

  // Holds `count` places, at most as many as there are, from when they are free until it ends. Who
  // holds some must not ask for more.
  class Hold {
   public:
    Hold(Places& places, int count) : places_(places), count_(count) { places_.take(count_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { places_.give_back(count_); }

   private:
    Places& places_;
    const int count_;
  };

 private:
  void take(int count);
  void give_back(int count);

  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  uint64_t asked_ = 0;   // the number of whoever asks next
  uint64_t served_ = 0;  // the number of whoever is next
};

}  // namespace runnel::cpu
