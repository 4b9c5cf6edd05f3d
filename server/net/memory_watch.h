// Compares the memory that the process has with what its connections and calls explain.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "server/net/listen_socket.h"

namespace runnel {

// Bytes that a process may have: `fixed`, and for each connection and call that is there.
struct MemoryAllowance {
  int64_t fixed = 0;
  int64_t per_connection = 0;
  int64_t per_call = 0;
};

class MemoryWatch {
 public:
  // Opens /proc/self/statm: without it, nothing is ever too much.
  MemoryWatch();

  // Until the first, nothing is too much. Any thread may call it.
  void allow(const MemoryAllowance& allowance);

  // Bytes that are resident beyond the allowance for as many connections and calls, and `more`;
  // 0 or less: none are.
  int64_t excess(int64_t connections, int64_t calls, int64_t more) const;

 private:
  int64_t resident() const;

  const Descriptor statm_;
  mutable std::mutex mutex_;
  MemoryAllowance allowance_;
};

}  // namespace runnel
