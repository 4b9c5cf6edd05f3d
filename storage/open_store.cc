#include "storage/open_store.h"

#include <algorithm>
#include <random>

#include "base/hex.h"
#include "base/text.h"
#include "storage/directory_store.h"
#include "storage/memory_store.h"

namespace runnel {
namespace {

constexpr std::string_view kDirectory = "dir:";

}  // namespace

Status check_store_url(std::string_view url) {
  if (url == "memory" || (url.starts_with(kDirectory) && url.size() > kDirectory.size())) return {};
  return invalid_argument("storage.url is " + quote(std::string(url)) +
                          "; it must be dir:PATH, or memory, which ends with the process");
}

Result<std::shared_ptr<Store>> open_store(const std::string& url, const std::string& sync,
                                          const StoreTimes& times, const Clock& clock) {
  if (Status s = check_store_url(url); !s.ok()) return s;
  if (url == "memory") {
    return std::shared_ptr<Store>(
        std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(), times, clock));
  }
  const SyncMode mode = sync == "each"       ? SyncMode::kEach
                        : sync == "interval" ? SyncMode::kInterval
                                             : SyncMode::kNone;
  auto store = DirectoryStore::open(
      {.folder = url.substr(kDirectory.size()), .sync = mode, .times = times}, clock);
  if (!store.ok()) return store.status();
  return std::shared_ptr<Store>(std::move(*store));
}

std::string new_replica() {
  std::random_device device;
  const auto bits = [&] { return (uint64_t{device()} << 32) | device(); };
  return hex(bits()) + hex(bits());
}

std::string tail_of(std::string_view state) {
  return hex(state.substr(state.size() - std::min(state.size(), kTailBytes)));
}

Status state_replaced() { return not_found("the state was replaced while it was read; try again"); }

}  // namespace runnel
