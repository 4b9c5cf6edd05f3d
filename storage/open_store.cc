#include "storage/open_store.h"

#include <algorithm>
#include <random>

#include "base/file.h"
#include "base/hex.h"
#include "base/store_url.h"
#include "base/text.h"
#include "storage/directory_store.h"
#include "storage/memory_store.h"
#include "storage/redis_store.h"

namespace runnel {
namespace {

constexpr int64_t kMostPasswordBytes = 4096;

Result<std::shared_ptr<Store>> open_directory(const std::string& path,
                                              const StoreSettings& settings, const Clock& clock) {
  const SyncMode mode = settings.sync == "each"       ? SyncMode::kEach
                        : settings.sync == "interval" ? SyncMode::kInterval
                                                      : SyncMode::kNone;
  auto store = DirectoryStore::open({.folder = path, .sync = mode, .times = settings.times}, clock);
  if (!store.ok()) return store.status();
  return std::shared_ptr<Store>(std::move(*store));
}

// Reads the first line of a file that nobody else can read.
Result<std::string> read_password(const std::string& path) {
  const auto file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  if (Status s = file->check_private(); !s.ok()) return s;
  auto text = file->read_head(kMostPasswordBytes);
  if (!text.ok()) return text;
  text->resize(std::min(text->size(), text->find_first_of("\r\n")));
  if (!text->empty()) return text;
  return invalid_argument(quote(path, 300) + " has no password: write it to the first line");
}

Result<std::shared_ptr<Store>> open_redis(const StoreUrl& url, const StoreSettings& settings,
                                          const Clock& clock) {
  RedisOptions options = {.url = url};
  if (url.tls) {
    auto tls = redis_tls(settings.tls);
    if (!tls.ok()) return tls.status();
    options.tls = std::move(*tls);
  }
  if (!settings.password_file.empty()) {
    auto password = read_password(settings.password_file);
    if (!password.ok()) return password.status();
    options.password = std::move(*password);
  }
  auto store = RedisStore::open(std::move(options), settings.times, clock);
  if (!store.ok()) return store.status();
  return std::shared_ptr<Store>(std::move(*store));
}

}  // namespace

Result<std::shared_ptr<Store>> open_store(const StoreSettings& settings, const Clock& clock) {
  const auto url = parse_store_url(settings.url);
  if (!url.ok()) return url.status();
  switch (url->kind) {
    case StoreKind::kDirectory:
      return open_directory(url->path, settings, clock);
    case StoreKind::kRedis:
      return open_redis(*url, settings, clock);
    case StoreKind::kMemory:
      break;
  }
  return std::shared_ptr<Store>(
      std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(), settings.times, clock));
}

std::string new_replica() {
  std::random_device device;
  const auto bits = [&] { return (uint64_t{device()} << 32) | device(); };
  return hex(bits()) + hex(bits());
}

void keep_tail(std::string& last, std::string_view more) {
  last.append(more.substr(more.size() - std::min(more.size(), kTailBytes)));
  last.erase(0, last.size() - std::min(last.size(), kTailBytes));
}

std::string tail_of(std::string_view state) {
  return hex(state.substr(state.size() - std::min(state.size(), kTailBytes)));
}

void keep_first(std::vector<std::string>& ids, size_t most) {
  std::ranges::sort(ids);
  ids.resize(std::min(ids.size(), most));
}

Status state_replaced() { return not_found("the state was replaced while it was read; try again"); }

}  // namespace runnel
