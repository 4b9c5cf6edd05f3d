// A device that runs the CUDA kernels on the host, one thread at a time within each phase, so that
// kernels/cuda/ can be tested without a GPU. The test chooses the order of the threads of a phase,
// which exposes results that depend on that order.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/device_backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/script.h"
#include "tests/base/random_numbers.h"
#include "tests/kernels/host_backend.h"
#include "tests/kernels/host_cluster.h"

namespace runnel::cuda {

inline float from_bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// The block that a kernel sees (kernels/cuda/launch.h).
template <int kBlockThreads>
class HostBlock {
 public:
  static constexpr int kThreads = kBlockThreads;
  static_assert(kThreads % kWarp == 0);

  template <typename T>
  class Each {
   public:
    T& operator[](int thread) { return held_[thread]; }

   private:
    std::vector<T> held_ = std::vector<T>(kThreads);
  };

  // `cluster`: null if the block is alone.
  HostBlock(int64_t index, int64_t shared_bytes, ThreadOrder order, HostCluster* cluster)
      : index_(index),
        cluster_(cluster),
        shared_(shared_bytes / 8 + 1, std::bit_cast<double>(kPoison)),
        shared_bytes_(shared_bytes),
        order_(kThreads) {
    std::iota(order_.begin(), order_.end(), 0);
    if (order == ThreadOrder::kBackward) std::reverse(order_.begin(), order_.end());
    shuffled_ = order == ThreadOrder::kShuffled;
    if (cluster_ != nullptr) cluster_->enter(rank(), {bytes(), static_cast<size_t>(shared_bytes)});
  }
  ~HostBlock() {
    if (cluster_ != nullptr) cluster_->leave(rank());
    check_guard();
  }

  int64_t index() const { return index_ - first_; }
  void count_from(int first) { first_ = first; }
  template <typename T>
  T* shared() {
    return reinterpret_cast<T*>(shared_.data());
  }
  template <typename Body>
  void each(const Body& body) {
    if (shuffled_) std::shuffle(order_.begin(), order_.end(), generator_);
    for (const int thread : order_) {
      thread_ = thread;
      body(thread);
    }
  }
  template <typename Body>
  void phase(const Body& body) {
    each(body);
    share_phases();
    if (cluster_ != nullptr) cluster_->pause(rank());
  }

  // Reads both ends, so that a sanitizer reports an invalid address.
  void prefetch(const void* from, uint32_t bytes) const {
    check(reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0 && bytes > 0,
          "memory is prefetched 16 bytes at a time");
    const volatile auto* at = static_cast<const volatile std::byte*>(from);
    (void)at[0];
    (void)at[bytes - 1];
  }

  int rank() const { return cluster_ == nullptr ? 0 : static_cast<int>(index_ % ranks()); }
  int ranks() const { return cluster_ == nullptr ? 1 : cluster_->ranks(); }
  template <typename T>
  void send(int rank, T* at, T value) {
    if (cluster_ == nullptr) {
      *at = value;
      return;
    }
    cluster_->send(rank, offset(at), std::as_bytes(std::span(&value, 1)));
  }
  void gather(int together) {
    if (cluster_ != nullptr) cluster_->gather(rank(), together);
  }
  template <typename Work>
  void meet(int bytes, const Work& work) {
    share_phases();
    if (cluster_ != nullptr) cluster_->pause(rank());
    work();
    if (cluster_ != nullptr) cluster_->meet(rank(), bytes);
  }
  void prepare(Barrier* at, int count) { cluster_->prepare(rank(), offset(at), count); }
  void arrive(int rank, Barrier* at) { cluster_->arrive(rank, offset(at), 0); }
  void expect(Barrier* at, int bytes) { cluster_->arrive(rank(), offset(at), bytes); }
  // A device sees only whether a phase is odd or even. So this warp, or all warps at the end of a
  // phase, must already know that the phase before is over.
  void await(Barrier* at, int phase) {
    int& known = known_[thread_ / kWarp][offset(at)];
    known = std::max(known, known_by_all_[offset(at)]);
    check(known >= phase, "a phase is waited for when those before it are known to be over");
    cluster_->await(rank(), offset(at), phase);
    known = phase + 1;
  }
  void fetch(void* to, const void* from, int bytes, Barrier* at, unsigned ranks) {
    for (int rank = 0; rank < this->ranks(); ++rank) {
      const bool here = ranks == 0 ? rank == this->rank() : (ranks >> rank & 1) != 0;
      if (here) cluster_->fetch(rank, offset(to), from, static_cast<size_t>(bytes), offset(at));
    }
  }
  template <typename T>
  void bring(T* to, const T* from) {
    static_assert(sizeof(T) == 16);
    cluster_->bring(rank(), thread_, offset(to), from);
  }
  void brought(Barrier* at) { cluster_->brought(rank(), thread_, offset(at)); }
  template <typename X>
  void fold(const X& x, int mask) {
    std::vector<float> next(kThreads);
    for (int t = 0; t < kThreads; ++t) next[t] = x(t) + x(t ^ mask);
    for (int t = 0; t < kThreads; ++t) x(t) = next[t];
  }
  template <typename X, typename Y>
  void fold(const X& x, const Y& y, int mask) {
    for (int t = 0; t < kThreads; ++t) x(t) += y(t ^ mask);
  }
  template <typename X>
  void fold_largest(const X& x, int mask) {
    std::vector<float> next(kThreads);
    for (int t = 0; t < kThreads; ++t) next[t] = std::max(x(t), x(t ^ mask));
    for (int t = 0; t < kThreads; ++t) x(t) = next[t];
  }
  template <typename T>
  T sum(Each<T>& of) {
    T total{};
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        T next[kWarp];
        for (int lane = 0; lane < kWarp; ++lane) {
          next[lane] = of[warp * kWarp + lane] + of[warp * kWarp + (lane ^ mask)];
        }
        for (int lane = 0; lane < kWarp; ++lane) of[warp * kWarp + lane] = next[lane];
      }
      total = warp == 0 ? of[0] : total + of[warp * kWarp];
    }
    return total;
  }
  uint64_t largest(Each<uint64_t>& of) {
    uint64_t most = 0;
    for (int t = 0; t < kThreads; ++t) most = std::max(most, of[t]);
    return most;
  }
  template <typename T>
  void add(T* at, T more) {
    *at += more;
  }
  uint32_t pack(float low, float high) const { return bf16_bits(low) | bf16_bits(high) << 16; }
  // Multiplies the fragments of each warp's lanes, as the PTX instruction is defined.
  template <typename C, typename A, typename B>
  void mma(const C& c, const A& a, const B& b) {
    for (int warp = 0; warp < kThreads; warp += kWarp) multiply(warp, c, a, b);
  }
  template <int kCount, typename C, typename A, typename B>
  void mma(const C& c, const A& a, const B& b) {
    for (int warp = 0; warp < kThreads; warp += kWarp) {
      for (int i = 0; i < kCount; ++i) {
        multiply(
            warp, [&](int t) -> FragmentC& { return c(t, i); },
            [&](int t) -> const FragmentA& { return a(t, i); },
            [&](int t) -> const FragmentB& { return b(t, i); });
      }
    }
  }
  void require(bool holds, const char* what) const { check(holds, what); }

 private:
  static constexpr uint64_t kPoison = 0x7ff8badbadbadbadULL;

  template <typename C, typename A, typename B>
  static void multiply(int warp, const C& c, const A& a, const B& b) {
    float left[kTileM][kTileK];
    float right[kTileK][kTileN];
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Element at = element_a(lane, i);
        left[at.row][at.col] = from_bf16(a(warp + lane).pair[i] & 0xffff);
        left[at.row][at.col + 1] = from_bf16(a(warp + lane).pair[i] >> 16);
      }
      for (int i = 0; i < 2; ++i) {
        const Element at = element_b(lane, i);
        right[at.row][at.col] = from_bf16(b(warp + lane).pair[i] & 0xffff);
        right[at.row + 1][at.col] = from_bf16(b(warp + lane).pair[i] >> 16);
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Element at = element_c(lane, i);
        float& sum = c(warp + lane).at[i];
        for (int k = 0; k < kTileK; ++k) sum = std::fma(left[at.row][k], right[k][at.col], sum);
      }
    }
  }
  void share_phases() {
    for (const auto& warp : known_) {
      for (const auto& [at, phases] : warp) {
        known_by_all_[at] = std::max(known_by_all_[at], phases);
      }
    }
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(shared_.data()); }
  // The offset of an address in the block's shared memory.
  std::ptrdiff_t offset(const void* at) { return static_cast<const std::byte*>(at) - bytes(); }
  void check_guard() const {
    // From the end of the requested memory to the end of the allocated memory.
    const auto* bytes = reinterpret_cast<const unsigned char*>(shared_.data());
    const auto* poison = reinterpret_cast<const unsigned char*>(&kPoison);
    for (size_t i = shared_bytes_; i < shared_.size() * 8; ++i) {
      check(bytes[i] == poison[i % 8], "a block stays within its shared memory");
    }
  }

  int64_t index_;
  int64_t first_ = 0;  // the block from which index() counts
  HostCluster* cluster_;
  std::vector<double> shared_;
  int64_t shared_bytes_;
  std::vector<int> order_;
  int thread_ = 0;  // the thread that runs now
  // The number of phases of each barrier that a warp knows to be over.
  std::array<std::map<std::ptrdiff_t, int>, kThreads / kWarp> known_;
  std::map<std::ptrdiff_t, int> known_by_all_;
  bool shuffled_;
  RandomNumbers generator_{static_cast<uint64_t>(index_)};
};

// A HostDevice fills these members in, and a test reads them.
struct Watched {
  std::vector<const int32_t*> values;  // where the embeddings of batches read their values
  int copies = 0;                      // copies that block the host
};

class HostDevice {
 public:
  // `late`: enqueued work runs as late as possible, when a caller asks whether it is done.
  // `watched` may be null.
  explicit HostDevice(ThreadOrder order, bool late = false, Watched* watched = nullptr)
      : order_(order), late_(late), watched_(watched) {}

  std::string name() const { return "cuda/host"; }
  int64_t shared_limit() const { return 227 << 10; }
  int64_t free_memory() const { return int64_t{1} << 30; }
  Buffer allocate(int64_t bytes, Memory) {
    if (bytes > int64_t{1} << 40) throw std::bad_alloc();
    const auto rounded = static_cast<size_t>((bytes + 64) / 64 * 64);
    void* data = std::aligned_alloc(64, rounded);
    if (data == nullptr) throw std::bad_alloc();
    std::memset(data, 0, rounded);
    return {static_cast<std::byte*>(data), bytes,
            [](std::byte* held, int64_t) { std::free(held); }};
  }
  void copy(Span from, Span to) {
    if (watched_ != nullptr) ++watched_->copies;
    catch_up(0);
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes));
  }
  bool must_wait(Span, Span) const { return true; }
  void zero(Span bytes) {
    enqueue([bytes] { std::memset(bytes.data, 0, static_cast<size_t>(bytes.bytes)); });
  }
  Result<bool> done(int later) {
    catch_up(later);
    return true;
  }
  // Goes through a script, as on the GPU.
  template <typename Enqueue>
  void batch(const Enqueue& enqueue) {
    script_.clear();
    recording_ = true;
    enqueue();
    recording_ = false;
    this->enqueue([this, script = script_] { script.replay(*this); });
    if (late_) batch_ends_.push_back(enqueued_);
  }
  template <typename Kernel>
  void launch(const Launch& launch, const typename Kernel::Args& args) {
    if (recording_) {
      watch<Kernel>(args);
      script_.add<Kernel>(launch, args);
    } else if (replaying_ || !late_) {
      launch_now<Kernel>(launch, args);
    } else {
      enqueue([this, launch, args] { launch_now<Kernel>(launch, args); });
    }
  }
  template <typename Kernel>
  int64_t room(const Launch& launch) const {
    return kProcessors / launch.cluster;
  }

 private:
  static constexpr int64_t kProcessors = 16;  // an assumed number of multiprocessors

  // Runs work in the order of calls: now, or if `late`, when a caller asks.
  void enqueue(std::function<void()> work) {
    if (!late_) return work();
    waiting_.push_back(std::move(work));
    ++enqueued_;
  }
  // Runs the waiting work up to the end of the batch before the last `batches` ones.
  void catch_up(size_t batches) {
    if (!late_ || batch_ends_.size() <= batches) return;
    const int64_t until = batches == 0 ? enqueued_ : batch_ends_[batch_ends_.size() - batches - 1];
    replaying_ = true;
    for (; run_ < until; ++run_) {
      waiting_.front()();
      waiting_.pop_front();
    }
    replaying_ = false;
  }

  template <typename Kernel>
  void watch(const typename Kernel::Args& args) {
    if constexpr (std::is_same_v<Kernel, EmbedKernel>) {
      if (watched_ != nullptr) watched_->values.push_back(args.values.from);
    }
  }
  template <typename Kernel>
  void launch_now(const Launch& launch, const typename Kernel::Args& args) {
    if constexpr (requires { Kernel::enqueue(args, nullptr); }) {
      const Status status = Kernel::enqueue(args, nullptr);
      check(status.ok(), status.message().c_str());
    } else {
      launch_kernel<Kernel>(launch, args);
    }
  }
  template <typename Kernel>
  void launch_kernel(const Launch& launch, const typename Kernel::Args& args) {
    const auto run = [&](int64_t index, HostCluster* cluster) {
      HostBlock<Kernel::kThreads> block(index, launch.shared_bytes, order_, cluster);
      if constexpr (requires { Kernel::ahead(block, args); }) Kernel::ahead(block, args);
      Kernel::run(block, args);
    };
    for (int64_t index = 0; index < launch.blocks; index += launch.cluster) {
      if (launch.cluster == 1 && !requires { Kernel::kClusters; }) {
        run(index, nullptr);
        continue;
      }
      HostCluster cluster(static_cast<int>(launch.cluster), ++clusters_);
      cluster.run([&](int rank) { run(index + rank, &cluster); });
    }
  }

  ThreadOrder order_;
  bool late_;
  Watched* watched_;
  std::deque<std::function<void()>> waiting_;
  int64_t enqueued_ = 0, run_ = 0;         // so far
  std::vector<int64_t> batch_ends_ = {0};  // enqueued_ after each batch; first, at the start
  bool replaying_ = false;
  uint32_t clusters_ = 0;  // run so far
  Script<HostDevice> script_;
  bool recording_ = false;
};

// Has all kernels, so it is compiled once, in host_backend.cc.
extern template class DeviceBackend<HostDevice>;

}  // namespace runnel::cuda
