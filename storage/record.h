// A session's record in a store. It has the session's position, names its state, and is the fence:
// only the server that began the last call may write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace runnel {

// The last bytes of a state file are its checksum (docs/state.md). A record has them, too, so that
// the state of another session is never loaded by mistake.
inline constexpr size_t kTailBytes = 32;
// The maximum numbers of bytes and entries of a record's log.
inline constexpr int64_t kMostLogBytes = int64_t{1} << 20;
inline constexpr size_t kMostLogEntries = 256;
inline constexpr int64_t kMostAnswerBytes = int64_t{1} << 20;  // of SavedAnswer::text
// In version 1, the log and the answer are strings of JSON, which may double their size.
inline constexpr int64_t kMostRecordBytes = 4096 + 2 * kMostLogBytes + 2 * kMostAnswerBytes;
// The prefix of the name of a call with an id from its client. A later call with the same name is
// then the same call, even after it has ended. Without the prefix, it may be another call with an
// equal request.
inline constexpr std::string_view kNamedCall = "id:";

// The answer to a saved call, in case the call is retried.
struct SavedAnswer {
  bool has_ended = true;  // false: the call was saved where it stopped, before its end
  std::string text = {};  // its values, which the store does not read; empty: not kept

  friend bool operator==(const SavedAnswer&, const SavedAnswer&) = default;
};

struct Record {
  int64_t epoch = 0;        // increases with every call that begins; no epoch is used twice
  std::string owner;        // of the last call: the server, "/", and the model's name there
  int64_t until = 0;        // the end of the lease, in milliseconds since 1970; 0: no call runs
  std::string begun;        // the name of the call that runs or was cut off; empty: none
  int64_t seed = 0;         // the seed of the call `begun`
  std::string last;         // the name of the last saved call, if it has an id from its client
  SavedAnswer answer = {};  // the answer to the call `last`
  int64_t position = 0;     // the position of the session's next value
  int64_t state = 0;        // the epoch that wrote the state; 0: no state, the session is empty
  std::string tail;      // the last kTailBytes of the state, in hexadecimal digits; empty: no state
  int64_t state_at = 0;  // the position of the state; the log leads from there to `position`
  std::vector<std::string> log;  // the calls since the state; the store does not read it
  int64_t saved = 0;             // the epoch of the last saved call. It identifies the content of
                                 // the session
  int64_t used = 0;              // when a call last began, renewed its lease or ended, in
                                 // milliseconds since 1970
  std::string list = {};         // record_list() of the session; empty: it is in no list
  std::string id = {};           // the session's id, if it is in a list

  friend bool operator==(const Record&, const Record&) = default;
};

// The record with its key: a line of JSON, and then the answer and the entries of the log, each
// with a newline.
std::string record_text(const Record& record, std::string_view key);

// Reads a text of record_text(), or of version 1, in which all is JSON. DATA_LOSS: the text has
// another form, or is the record of another key.
Result<Record> parse_record(std::string_view text, std::string_view key);

// The claim of a call that is about to change a session.
struct Claim {
  std::string owner;
  std::string request;  // the name of the call, by which the same call is recognized after a crash
  int64_t seed = 0;
  bool is_seed_given = false;                     // else the same call keeps its earlier seed
  std::optional<int64_t> expected_position = {};  // none: any position
  bool after_cut_off = false;                     // may begin after another call was cut off
};

enum class FenceOutcome {
  kOk,
  kNone,       // there is no record
  kBusy,       // a call runs on another server
  kElsewhere,  // the session is not at the expected position
  kCutOff,     // another call was cut off, and Claim::after_cut_off is false
};

// The outcome of a Claim.
struct Begun {
  FenceOutcome outcome = FenceOutcome::kNone;
  int64_t epoch = 0;     // kOk: the epoch of the call
  int64_t seed = 0;      // kOk: the seed of the call, or of its earlier try that was cut off
  int64_t left_ms = 0;   // kBusy: the rest of the lease
  bool repeats = false;  // the call has already been saved; its expected position does not matter
  Record before = {};    // the record before this call
};

// The holder of a session: the call that began last. Only this call may renew the lease, and end.
struct Holder {
  std::string owner;
  int64_t epoch = 0;
  // The name and the seed of an earlier call that was cut off, in case this call ends without a
  // state. Empty: there was none.
  std::string cut_off = {};
  int64_t seed = 0;
  SavedAnswer answer = {};  // the answer to this call, if it is saved
};

// A session that a call makes.
struct NewSession {
  std::string owner;         // as Record::owner
  std::string request = {};  // as Claim::request
  SavedAnswer answer = {};   // the answer to the call
  std::string list = {};     // as Record::list
  std::string id = {};       // as Record::id
};

// The entry of a call in the log, instead of a state.
struct LogEntry {
  int64_t position = 0;  // the session's position after the call
  std::string text;      // describes the call, so that it can be computed again
};

// The functions of the fence. A store calls them with the record locked, and then writes the record
// if it has changed. `dead`: the call that holds the lease is known to have ended with its server.
Begun begin_record(Record& record, const Claim& claim, int64_t now, int64_t lease, bool dead);
// Extends the lease. False, and nothing changes, if another call has begun since, or the call has
// ended.
bool renew_record(Record& record, const Holder& holder, int64_t now, int64_t lease);
// Ends a call. False, and nothing changes, in the cases of renew_record(). If `saved`, the caller
// must set the position and the state.
bool end_record(Record& record, const Holder& holder, int64_t now, bool saved);
// The same, but saves the call with an entry of the log.
bool log_record(Record& record, const Holder& holder, int64_t now, const LogEntry& entry);
// Whether a state may replace the log: the session is at rest, and `saved` is the epoch of its last
// call.
bool may_settle(const Record& record, int64_t saved);
// Replaces the state and the log of the record by a state at `position` that was written with
// `epoch`.
void put_state(Record& record, int64_t epoch, int64_t position, std::string tail);
// The record of a new session.
Record new_record(const NewSession& session, int64_t now);
// Whether no call has used the session for `ttl` milliseconds.
bool has_expired(const Record& record, int64_t now, int64_t ttl);

}  // namespace runnel
