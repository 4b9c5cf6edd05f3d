// Runs the blocks of a cluster on the host, one at a time. A block runs until it waits for others
// or for a copy, or yields; a random draw chooses the next block. A copy completes at a random
// time, in any order, and its target holds poison until then. So a block that acts too early or too
// late changes the result.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace runnel::cuda {

class HostCluster {
 public:
  HostCluster(int ranks, uint32_t seed) : blocks_(ranks), together_(ranks), random_(seed) {}

  int ranks() const { return static_cast<int>(blocks_.size()); }

  // Calls body(rank) for every block, each on its own thread.
  void run(const std::function<void(int rank)>& body) {
    next();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        std::unique_lock lock(mutex_);
        wait(lock, rank);
        lock.unlock();
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void enter(int rank, std::span<std::byte> shared) { blocks_[rank].shared = shared; }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    check(blocks_[rank].received == 0, "what is sent to a block comes before its last meeting");
    check(std::ranges::none_of(under_way_, [&](const Copy& copy) { return copy.rank == rank; }),
          "a block waits for every copy that goes to it");
    for (const auto& [offset, barrier] : blocks_[rank].barriers) {
      check(barrier.left == barrier.count && barrier.bytes == 0,
            "a block leaves no phase of a barrier half done");
    }
    blocks_[rank].at = At::kGone;
    next();
  }

  // Sometimes completes a copy, or lets another block run first.
  void pause(int rank) {
    std::unique_lock lock(mutex_);
    if (random_() % 4 == 0) let_come();
    if (random_() % 8 != 0) return;
    next();
    wait(lock, rank);
  }

  // Arrives immediately, which a device also may do.
  void send(int rank, std::ptrdiff_t offset, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(bytes, place(rank, offset, bytes.size()));
    blocks_[rank].received += static_cast<int64_t>(bytes.size());
  }

  // All blocks have arrived; from now on groups of `together` neighbours meet.
  void gather(int rank, int together) {
    meet(rank, 0);
    const std::lock_guard lock(mutex_);
    check(together > 0 && ranks() % together == 0, "a cluster parts into groups of one size");
    together_ = together;
  }

  // `bytes`: the number of bytes sent to the block by the time when its whole group has met.
  void meet(int rank, int64_t bytes) {
    std::unique_lock lock(mutex_);
    blocks_[rank].at = At::kMeeting;
    blocks_[rank].expected = bytes;
    const auto group = std::span(blocks_).subspan(rank / together_ * together_, together_);
    if (std::ranges::all_of(group, [](const Block& b) { return b.at == At::kMeeting; })) {
      ++met_;
      for (Block& block : group) {
        check(block.received == block.expected, "a block is sent as many bytes as it expects");
        block.at = At::kRunning;
        block.received = 0;
      }
    }
    next();
    wait(lock, rank);
  }

  // ---- barriers (launch.h), identified by their offset

  void prepare(int rank, std::ptrdiff_t barrier, int count) {
    const std::lock_guard lock(mutex_);
    check(met_ == 0 && count > 0, "a barrier is prepared before blocks gather");
    check(blocks_[rank].barriers.insert({barrier, {.count = count, .left = count}}).second,
          "a barrier is prepared once");
  }
  void arrive(int rank, std::ptrdiff_t barrier, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    check(met_ > 0 && blocks_[rank].at != At::kGone, "the block whose barrier it is, is there");
    arrive_at(barrier_of(rank, barrier), bytes);
  }
  void await(int rank, std::ptrdiff_t barrier, int phase) {
    constexpr int kMany = 1 << 20;
    std::unique_lock lock(mutex_);
    const Barrier& at = barrier_of(rank, barrier);
    for (int i = 0; at.phase <= phase; ++i) {
      check(at.phase == phase, "a phase is waited for that is under way, or just over");
      check(i < kMany, "what is waited for comes");
      if (random_() % 16 != 0 && let_come()) continue;
      next();
      wait(lock, rank);
    }
    check(at.phase == phase + 1, "a phase is waited for that is under way, or just over");
  }

  // Starts a copy to `to` in a block. Its bytes count at the block's barrier.
  void fetch(int rank, std::ptrdiff_t to, const void* from, size_t bytes, std::ptrdiff_t barrier) {
    const std::lock_guard lock(mutex_);
    check(
        bytes > 0 && bytes % 16 == 0 && to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0,
        "a copy is of whole runs of 16 bytes");
    under_way_.push_back({rank, {piece(rank, to, from, bytes)}, barrier, true});
  }
  // Starts a copy of 16 bytes for a thread. brought() adds its arrival after all of its copies.
  void bring(int rank, int thread, std::ptrdiff_t to, const void* from) {
    const std::lock_guard lock(mutex_);
    check(to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0, "16 bytes in one piece");
    brought_[{rank, thread}].push_back(piece(rank, to, from, 16));
  }
  void brought(int rank, int thread, std::ptrdiff_t barrier) {
    const std::lock_guard lock(mutex_);
    under_way_.push_back({rank, std::move(brought_[{rank, thread}]), barrier, false});
    brought_.erase({rank, thread});
  }

 private:
  enum class At { kRunning, kMeeting, kGone };
  struct Barrier {
    int count = 0, left = 0;  // arrivals
    int64_t bytes = 0;        // expected and not arrived yet
    int phase = 0;
  };
  struct Block {
    At at = At::kRunning;
    std::span<std::byte> shared;
    int64_t received = 0, expected = 0;  // bytes, since the last meeting
    std::map<std::ptrdiff_t, Barrier> barriers;
  };
  struct Piece {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  struct Copy {
    int rank;  // the block that it goes to
    std::vector<Piece> pieces;
    std::ptrdiff_t barrier;
    bool counts;  // its bytes count at the barrier; otherwise it is one arrival
  };

  std::byte* place(int rank, std::ptrdiff_t offset, size_t bytes) {
    check(rank >= 0 && rank < ranks(), "a block of the cluster");
    const Block& to = blocks_[rank];
    check(met_ > 0, "the blocks have met, so all are there, when something is sent");
    check(to.at != At::kGone, "a block is still there when something is sent to it");
    check(offset >= 0 && offset + bytes <= to.shared.size(),
          "a block stays within another one's shared memory");
    return to.shared.data() + offset;
  }
  Piece piece(int rank, std::ptrdiff_t offset, const void* from, size_t bytes) {
    std::byte* to = place(rank, offset, bytes);
    std::memset(to, 0xff, bytes);
    return {to, static_cast<const std::byte*>(from), bytes};
  }
  Barrier& barrier_of(int rank, std::ptrdiff_t offset) {
    const auto found = blocks_[rank].barriers.find(offset);
    check(found != blocks_[rank].barriers.end(), "a barrier has been prepared");
    return found->second;
  }
  static void arrive_at(Barrier& barrier, int64_t bytes) {
    check(barrier.left > 0, "a phase has no more arrivals than it waits for");
    --barrier.left;
    barrier.bytes += bytes;
    end_phase(barrier);
  }
  static void end_phase(Barrier& barrier) {
    if (barrier.left > 0 || barrier.bytes != 0) return;
    ++barrier.phase;
    barrier.left = barrier.count;
  }
  // Completes one of the copies under way, chosen at random. Returns false if there are none.
  bool let_come() {
    if (under_way_.empty()) return false;
    std::swap(under_way_[random_() % under_way_.size()], under_way_.back());
    const Copy copy = std::move(under_way_.back());
    under_way_.pop_back();
    Barrier& barrier = barrier_of(copy.rank, copy.barrier);
    for (const Piece& piece : copy.pieces) {
      std::memcpy(piece.to, piece.from, piece.bytes);
      if (copy.counts) barrier.bytes -= static_cast<int64_t>(piece.bytes);
    }
    copy.counts ? end_phase(barrier) : arrive_at(barrier, 0);
    return true;
  }

  // Draws the block that runs next.
  void next() {
    std::vector<int> running;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (blocks_[rank].at == At::kRunning) running.push_back(rank);
    }
    if (running.empty()) {
      check(std::ranges::all_of(blocks_, [](const Block& b) { return b.at == At::kGone; }),
            "every block of a cluster goes through every meeting");
      return;
    }
    turn_ = running[random_() % running.size()];
    changed_.notify_all();
  }
  void wait(std::unique_lock<std::mutex>& lock, int rank) {
    changed_.wait(lock, [&] { return turn_ == rank; });
  }

  std::vector<Block> blocks_;
  int together_;  // blocks that meet
  std::vector<Copy> under_way_;
  std::map<std::pair<int, int>, std::vector<Piece>> brought_;  // by rank and thread
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = -1;
  int met_ = 0;
};

}  // namespace runnel::cuda
