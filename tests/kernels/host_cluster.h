// The blocks of a cluster on the host: one runs at a time, each until it waits for the others or
// lets another one go first, in an order drawn at random. So what one does too early, or another
// too late, changes what comes out.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"

namespace runnel::cuda {

class HostCluster {
 public:
  HostCluster(int ranks, uint32_t seed) : blocks_(ranks), random_(seed) {}

  int ranks() const { return static_cast<int>(blocks_.size()); }

  // Calls body(rank) for every block, on a thread each.
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
    blocks_[rank].at = At::kGone;
    next();
  }

  // Lets another block go first, once in a while.
  void pause(int rank) {
    std::unique_lock lock(mutex_);
    if (random_() % 8 != 0) return;
    next();
    wait(lock, rank);
  }

  // Comes at once, as it may on a device.
  void send(int rank, std::ptrdiff_t offset, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    check(rank >= 0 && rank < ranks(), "a block of the cluster");
    Block& to = blocks_[rank];
    check(met_ > 0, "the blocks have met, so all are there, when something is sent");
    check(to.at != At::kGone, "a block is still there when something is sent to it");
    check(offset >= 0 && offset + bytes.size() <= to.shared.size(),
          "a block stays within another one's shared memory");
    std::memcpy(to.shared.data() + offset, bytes.data(), bytes.size());
    to.received += static_cast<int64_t>(bytes.size());
  }

  // `bytes`: as many as have been sent to the block when all have met.
  void meet(int rank, int64_t bytes) {
    std::unique_lock lock(mutex_);
    blocks_[rank].at = At::kMeeting;
    blocks_[rank].expected = bytes;
    if (std::ranges::all_of(blocks_, [](const Block& b) { return b.at == At::kMeeting; })) {
      ++met_;
      for (Block& block : blocks_) {
        check(block.received == block.expected, "a block is sent as many bytes as it expects");
        block.at = At::kRunning;
        block.received = 0;
      }
    }
    next();
    wait(lock, rank);
  }

 private:
  enum class At { kRunning, kMeeting, kGone };
  struct Block {
    At at = At::kRunning;
    std::span<std::byte> shared;
    int64_t received = 0, expected = 0;  // bytes, since the last meeting
  };

  // Draws who goes on.
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
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = -1;
  int met_ = 0;
};

}  // namespace runnel::cuda
