// The launches of one pass over a batch, which are recorded before any of them runs. They are
// compared byte for byte with those of an earlier pass, so that a captured graph is reused only if
// it would do exactly the same work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/cuda/launch.h"

namespace runnel::cuda {

template <typename Device>
class Script {
 public:
  void clear() {
    bytes_.clear();
    launches_ = 0;
  }

  template <typename Kernel>
  void add(const Launch& launch, const typename Kernel::Args& args) {
    using Args = typename Kernel::Args;
    static_assert(std::is_trivially_copyable_v<Args>);
    const Entry entry = {&play<Kernel>, launch, used_bytes(args)};
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Entry) + padded(entry.args_bytes));
    std::memcpy(&bytes_[at], &entry, sizeof(Entry));
    Args same = args;
    __builtin_clear_padding(&same);  // because launches are compared by their bytes
    std::memcpy(&bytes_[at + sizeof(Entry)], &same, entry.args_bytes);
    ++launches_;
  }

  // Launches the recorded entries on the device, in order.
  void replay(Device& device) const {
    for (size_t at = 0; at < bytes_.size();) {
      Entry entry;
      std::memcpy(&entry, &bytes_[at], sizeof(Entry));
      entry.play(device, entry, &bytes_[at + sizeof(Entry)]);
      at += sizeof(Entry) + padded(entry.args_bytes);
    }
  }

  int64_t launches() const { return launches_; }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  struct Entry {
    void (*play)(Device& device, const Entry& entry, const std::byte* args);
    Launch launch;
    size_t args_bytes;
  };

  static constexpr size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

  // The number of bytes of the arguments that are stored.
  template <typename Args>
  static size_t used_bytes(const Args& args) {
    if constexpr (requires { args.bytes(); }) return args.bytes();
    return sizeof(Args);
  }

  template <typename Kernel>
  static void play(Device& device, const Entry& entry, const std::byte* bytes) {
    typename Kernel::Args args = {};
    std::memcpy(&args, bytes, entry.args_bytes);
    device.template launch<Kernel>(entry.launch, args);
  }

  std::vector<std::byte> bytes_;
  int64_t launches_ = 0;
};

}  // namespace runnel::cuda
