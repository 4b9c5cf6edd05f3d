// What a thread does while it watches for another one's store.
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
