// A pause in the loop of a thread that waits for another thread's store.
#pragma once

namespace runnel::cpu {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace runnel::cpu
