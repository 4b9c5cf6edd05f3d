// A fair semaphore for the threads of a pool: places are granted in the order of requests. Each
// user takes a place for every thread that it runs, so the users together never run more threads
// than there are places. A user waits only for users that asked earlier.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace runnel::cpu {

class Places {
 public:
  explicit Places(int count) : free_(count) {}

  // Waits for `count` places, and holds them until it is destroyed. `count` is at most the number
  // of places. A user that holds places must not ask for more.
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
  uint64_t asked_ = 0;   // the number of the next user that asks
  uint64_t served_ = 0;  // the number of the next user to be served
};

}  // namespace runnel::cpu
