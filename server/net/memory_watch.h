// Compares the memory of the process with the amount that its connections and calls can account
// for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "server/net/listen_socket.h"

namespace runnel {

// The bytes that a process may use: a fixed part, and a part for each open connection and call.
struct MemoryAllowance {
  int64_t fixed = 0;
  int64_t per_connection = 0;
  int64_t per_call = 0;
};

class MemoryWatch {
 public:
  // Opens /proc/self/statm. If that fails, there is never an excess.
  MemoryWatch();

  // Sets the allowance. There is never an excess before the first call, and while `fixed` is 0. Any
  // thread may call this.
  void allow(const MemoryAllowance& allowance);

  // The resident bytes beyond the allowance for these connections and calls plus `more` bytes. 0 or
  // less: there is no excess.
  int64_t excess(int64_t connections, int64_t calls, int64_t more) const;

 private:
  int64_t resident() const;

  const Descriptor statm_;
  mutable std::mutex mutex_;
  MemoryAllowance allowance_;
};

}  // namespace runnel
