// Opens stores in Redis even if a busy machine exceeds their timeouts.
#pragma once

#include <memory>
#include <utility>

#include "base/clock.h"
#include "storage/redis_store.h"
#include "tests/base/eventually.h"

namespace runnel {

// Tries to open a store until Redis answers in time. Null if it never does.
inline std::unique_ptr<RedisStore> open_when_in_time(const StoreUrl& url, const StoreTimes& times) {
  std::unique_ptr<RedisStore> store;
  eventually([&] {
    auto opened = RedisStore::open({.url = url}, times, real_clock());
    if (opened.ok()) store = std::move(*opened);
    return opened.ok();
  });
  return store;
}

}  // namespace runnel
