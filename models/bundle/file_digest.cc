#include "models/bundle/file_digest.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/thread_priority.h"

namespace runnel {
namespace {

// The bytes that are read at a time: few enough to stay in a core's own cache until they are
// hashed.
constexpr int64_t kPiece = 1 << 20;

}  // namespace

FileDigest::FileDigest(std::span<const WeightFile> files)
    : files_(files), thread_([this](const std::stop_token& stop) { run(stop); }) {}

const Result<std::string>* FileDigest::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  known_.wait_for(lock, time, [this] { return result_.has_value(); });
  return result_.has_value() ? &*result_ : nullptr;
}

void FileDigest::run(const std::stop_token& stop) {
  compute_behind_others();  // so that it does not slow models that are being served
  Result<std::string> found = Status(Code::kResourceExhausted, "no memory to hash the weights");
  try {
    found = of_all(stop);
  } catch (const std::bad_alloc&) {
  }
  std::lock_guard lock(mutex_);
  result_ = std::move(found);
  known_.notify_all();
}

Result<std::string> FileDigest::of_all(const std::stop_token& stop) {
  if (files_.size() == 1) return of_one(files_[0].file(), stop);
  std::string lines;
  for (const WeightFile& file : files_) {
    const Result<std::string> digest = of_one(file.file(), stop);
    if (!digest.ok()) return digest.status();
    lines += *digest + "  " + file.path().substr(file.path().rfind('/') + 1) + "\n";
  }
  return hex(as_text(sha256_of(std::as_bytes(std::span(lines)))));
}

Result<std::string> FileDigest::of_one(const RegularFile& file, const std::stop_token& stop) {
  Sha256 hash;
  std::vector<std::byte> room(static_cast<size_t>(std::min(kPiece, file.bytes())));
  for (int64_t at = 0; at < file.bytes(); at += std::ssize(room)) {
    if (stop.stop_requested()) return Status(Code::kCancelled, "the weights are no longer needed");
    const auto piece =
        std::span(room).first(static_cast<size_t>(std::min(std::ssize(room), file.bytes() - at)));
    if (Status s = file.read_at(at, piece); !s.ok()) return s;
    hash.add(piece);
    done_.fetch_add(std::ssize(piece), std::memory_order_relaxed);
  }
  return hex(as_text(hash.finish()));
}

}  // namespace runnel
