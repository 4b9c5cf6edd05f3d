// A store in Redis (7 or newer), which several servers may share. Redis has these keys, and each of
// them expires by itself:
// - "runnel:KEY" is the record of a session KEY, as record_text() writes it.
// - "runnel:KEY:EPOCH:NUMBER" is a piece of the session's state.
// - "runnel:list:LIST" is the sorted set of the sessions of a list.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/known_records.h"
#include "storage/redis_client.h"
#include "storage/store.h"

namespace runnel {

// The size of each piece of a state except for the last one, which is shorter.
inline constexpr size_t kRedisPieceBytes = size_t{1} << 20;

class RedisStore final : public Store {
 public:
  // `clock` must outlive the store. The store takes the time from Redis, or from `clock` if that is
  // virtual. UNAVAILABLE if Redis cannot be called, or refuses a script; FAILED_PRECONDITION if
  // Redis may delete sessions to make room.
  static Result<std::unique_ptr<RedisStore>> open(RedisOptions options, const StoreTimes& times,
                                                  const Clock& clock);

  const std::string& replica() const override { return replica_; }
  bool needs_seals() const override { return true; }
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
  // The record of a session when it was read.
  struct Seen {
    int64_t now = 0;           // the time then, in milliseconds since 1970
    int64_t estimated_ms = 0;  // the time of Redis if it was estimated; 0: Redis has told it
    std::string version = {};  // the first line of the record's text; empty: Redis has no text
    std::optional<Record> record = {};  // none: no text, or the record has expired or is damaged
    Status damage = {};                 // why the text is not a record; OK if it is one
    std::string list = {};              // the list that the record named; empty: none
    std::string member = {};            // the session's member of that list
  };
  // The pieces of a state that has been written, but belongs to no record yet. Their keys begin
  // with `name`, which is temporary.
  struct Pieces {
    std::string name = {};
    size_t count = 0;
    std::string tail = {};  // of the state, as Record::tail
  };
  // Changes Seen::record. Returns false to leave the record in Redis as it is.
  using SeenChange = std::function<bool(Seen&)>;

  RedisStore(RedisOptions options, const StoreTimes& times, const Clock& clock);

  void note_time(int64_t redis_ms);
  int64_t estimated_ms() const;
  std::optional<Seen> known(const std::string& key);
  Result<Seen> read(RedisClient& client, const std::string& key);
  Result<bool> swap(RedisClient& client, const std::string& key, const Seen& seen, bool is_new,
                    int64_t old_state, const Pieces& pieces);
  Result<std::optional<bool>> try_change(RedisClient& client, const std::string& key, Seen& seen,
                                         const SeenChange& change, const Pieces& pieces);
  Result<bool> change(RedisClient& client, const std::string& key, const SeenChange& change,
                      const Pieces& pieces);
  Result<bool> change(const std::string& key, const SeenChange& change);
  Result<bool> change_state(const std::string& key, const Snapshot& snapshot,
                            const SeenChange& change);
  Result<Pieces> write_pieces(RedisClient& client, const std::string& key,
                              const Snapshot& snapshot);
  static void remove_pieces(RedisClient& client, const Pieces& pieces);

  const StoreTimes times_;
  const Clock& clock_;
  const std::string replica_;
  std::atomic<uint64_t> written_{0};  // the number of states that were written, for their names
  std::atomic<int64_t> ahead_ms_{0};  // the last time of Redis, minus the time of clock_ then
  KnownRecords known_;
  RedisPool pool_;
};

}  // namespace runnel
