// A store in Redis (7 or newer), which several servers may share. A session KEY has a record
// "runnel:KEY", the text that a directory has too, and a state in pieces "runnel:KEY:EPOCH:NUMBER".
// The sessions of a list are in the sorted set "runnel:list:LIST". Each key expires by itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/redis_client.h"
#include "storage/store.h"

namespace runnel {

// The pieces of a state: all have this size, and the last one is shorter.
inline constexpr size_t kRedisPieceBytes = size_t{1} << 20;

class RedisStore final : public Store {
 public:
  // `clock` outlives the store. Times are those of Redis, unless `clock` is virtual.
  // UNAVAILABLE if Redis cannot be called, or refuses a script; FAILED_PRECONDITION if it may
  // delete sessions to make room.
  static Result<std::unique_ptr<RedisStore>> open(RedisOptions options, const StoreTimes& times,
                                                  const Clock& clock);

  const std::string& replica() const override { return replica_; }
  Result<Begun> begin(const std::string& key, const Claim& claim) override;
  Result<std::optional<Record>> look(const std::string& key) override;
  Status load(const std::string& key, const Record& record, const StateSink& sink) override;
  Result<bool> renew(const std::string& key, const Holder& holder) override;
  Result<bool> end(const std::string& key, const Holder& holder, const Snapshot* snapshot) override;
  Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) override;
  Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) override;
  Result<int64_t> create(const std::string& key, const NewSession& session,
                         const Snapshot* snapshot) override;
  Result<bool> remove(const std::string& key) override;
  Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                        size_t most) override;
  Status sweep() override { return {}; }
  Status sync() override { return {}; }

 private:
  // A record, as Redis has it.
  struct Seen {
    int64_t now = 0;                    // milliseconds since 1970
    std::string version = {};           // another text has another one; empty: there is none
    std::optional<Record> record = {};  // none: there is none, or it has expired or is damaged
    Status damage = {};
    std::string list = {};    // that the record named when it was read; empty: none
    std::string member = {};  // of the list
  };
  // Pieces under a name of their own, which no record names.
  struct Pieces {
    std::string name = {};
    size_t count = 0;
    std::string tail = {};
  };
  using SeenChange = std::function<bool(Seen&)>;  // whether it has changed the record

  RedisStore(RedisOptions options, const StoreTimes& times, const Clock& clock);

  Result<Seen> read(RedisClient& client, const std::string& key) const;
  Result<bool> swap(RedisClient& client, const std::string& key, const Seen& seen, bool is_new,
                    int64_t old_state, const Pieces& pieces) const;
  Result<bool> change(RedisClient& client, const std::string& key, const SeenChange& change,
                      const Pieces& pieces) const;
  Result<bool> change(const std::string& key, const SeenChange& change);
  Result<bool> change_state(const std::string& key, const Snapshot& snapshot,
                            const SeenChange& change);
  Result<Pieces> write_pieces(RedisClient& client, const std::string& key,
                              const Snapshot& snapshot);
  static void remove_pieces(RedisClient& client, const Pieces& pieces);

  const StoreTimes times_;
  const Clock& clock_;
  const std::string replica_;
  std::atomic<uint64_t> written_{0};  // states
  RedisPool pool_;
};

}  // namespace runnel
