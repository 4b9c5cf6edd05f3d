// The SHA-256 of files. A separate thread computes it while the weights in the files are packed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "base/status.h"
#include "models/bundle/weight_file.h"

namespace runnel {

class FileDigest {
 public:
  // Starts the thread. The files must outlive the object. The destructor stops the thread at the
  // next piece of a file. Throws std::system_error if no thread can be started.
  explicit FileDigest(std::span<const WeightFile> files);

  // The number of bytes that have been hashed.
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

  // Waits for the digest for at most this time. Null if it is not known by then. For one file it is
  // the SHA-256 in hex. For several files it is the output of `sha256sum *.safetensors |
  // sha256sum`. INVALID_ARGUMENT if a file cannot be read or has been cut short, RESOURCE_EXHAUSTED
  // if there is no memory for reading.
  const Result<std::string>* wait_for(std::chrono::milliseconds time);

 private:
  void run(const std::stop_token& stop);
  Result<std::string> of_all(const std::stop_token& stop);
  Result<std::string> of_one(const RegularFile& file, const std::stop_token& stop);

  const std::span<const WeightFile> files_;
  std::atomic<int64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable known_;
  std::optional<Result<std::string>> result_;
  std::jthread thread_;  // declared last, so it is joined before the other members are destroyed
};

}  // namespace runnel
