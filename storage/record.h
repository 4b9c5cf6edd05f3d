// A session's record in a store: its position, which state belongs to it, and the fence, by which
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

// The last bytes of a state file are its checksum (docs/state.md). A record has them, so that the
// state of another session is never taken for its own.
inline constexpr size_t kTailBytes = 32;
// Of a record's log, and of its entries.
inline constexpr int64_t kMostLogBytes = int64_t{1} << 20;
inline constexpr size_t kMostLogEntries = 256;
inline constexpr int64_t kMostAnswerBytes = int64_t{1} << 20;  // of Answer::text
// Log and answer are written as texts in a text, which may double them.
inline constexpr int64_t kMostRecordBytes = 4096 + 2 * kMostLogBytes + 2 * kMostAnswerBytes;
// How the name of a call begins that has an id of its client's: the same name is then the same call
// also after the call has ended, and not another call that asks for the same.
inline constexpr std::string_view kNamedCall = "id:";

// The answer to a call that was saved, for when it is made again.
struct Answer {
  bool has_ended = true;  // false: the call was saved where it stopped, before its end
  std::string text = {};  // has its values; the store does not read it. Empty: they are not kept

  friend bool operator==(const Answer&, const Answer&) = default;
};

struct Record {
  int64_t epoch = 0;     // grows with every call that begins, and never comes twice
  std::string owner;     // who began last: the server, "/", the name of the model there
  int64_t until = 0;     // milliseconds since 1970: the end of its lease; 0: no call runs
  std::string begun;     // names the call that runs or was cut off; empty: none
  int64_t seed = 0;      // of that call
  std::string last;      // likewise, the last call that was saved, if it has an id of its client's
  Answer answer = {};    // to that call
  int64_t position = 0;  // of the session's next value
  int64_t state = 0;     // the epoch that wrote the state; 0: no state, the session is empty
  std::string tail;      // the last kTailBytes of the state, in hexadecimal digits; empty: no state
  int64_t state_at = 0;  // the position of the state; the log leads from there to `position`
  std::vector<std::string> log;  // of the calls since the state; the store does not read it
  int64_t saved = 0;             // the epoch of the last call that was saved. It names all that the
                                 // session has been given
  int64_t used = 0;              // milliseconds since 1970: when a call last began or ended
  std::string list = {};         // record_list() of the session; empty: it is in no list
  std::string id = {};           // of the session, if it is in a list

  friend bool operator==(const Record&, const Record&) = default;
};

// The record as JSON, with its key.
std::string record_text(const Record& record, std::string_view key);

// Reads such a text. DATA_LOSS says why a text is none that record_text() has written, or is the
// record of another key.
Result<Record> parse_record(std::string_view text, std::string_view key);

// A call that is about to change a session.
struct Claim {
  std::string owner;
  std::string request;  // names the call, so that the same call is known after a crash
  int64_t seed = 0;
  std::optional<int64_t> expected_position = {};  // none: anywhere
  bool after_cut_off = false;                     // begins also after another call that was cut off
};

enum class FenceOutcome {
  kOk,
  kNone,       // there is no record
  kBusy,       // a call runs on another server
  kElsewhere,  // the session is not at the expected position
  kCutOff,     // another call was cut off, and this one does not say that it knows
};

// The outcome of a Claim.
struct Begun {
  FenceOutcome outcome = FenceOutcome::kNone;
  int64_t epoch = 0;     // kOk: of the call
  int64_t seed = 0;      // kOk: that of the call that was cut off, if this is the same
  int64_t left_ms = 0;   // kBusy: of the lease
  bool repeats = false;  // the call was saved already, whatever its expected position
  Record before = {};    // the record as it was
};

// Whoever began: only they may renew, and end.
struct Holder {
  std::string owner;
  int64_t epoch = 0;
  // The call that was cut off, and its seed, if this one ends without a state; empty: none was.
  std::string cut_off = {};
  int64_t seed = 0;
  Answer answer = {};  // to this call, if it ends as saved
};

// A session that a call makes.
struct NewSession {
  std::string owner;         // as Record::owner
  std::string request = {};  // names the call, as Claim::request
  Answer answer = {};        // to it
  std::string list = {};     // as Record::list
  std::string id = {};       // as Record::id
};

// The addition of a call to the log, in place of a state.
struct LogEntry {
  int64_t position = 0;  // of the session after the call
  std::string text;      // what makes the call again
};

// The fence. A store calls each with the record locked, and writes the record if it was changed.
// `dead`: the call that holds the lease is known to have ended with its server.
Begun begin_record(Record& record, const Claim& claim, int64_t now, int64_t lease, bool dead);
// False, and no change, if another call has begun since, or the call has ended.
bool renew_record(Record& record, const Holder& holder, int64_t now, int64_t lease);
// Ends a call likewise, once. If it is `saved` the caller sets position and state.
bool end_record(Record& record, const Holder& holder, int64_t now, bool saved);
// Ends a call likewise as saved, by `entry`.
bool log_record(Record& record, const Holder& holder, int64_t now, const LogEntry& entry);
// Whether a state may take the place of the log: the session is at rest, and `saved` is its last
// call.
bool may_settle(const Record& record, int64_t saved);
// The record names a state of `position` that was written with `epoch`, in place of state and log.
void put_state(Record& record, int64_t epoch, int64_t position, std::string tail);
// A record that a call may begin on.
Record new_record(const NewSession& session, int64_t now);
// Whether nothing has used the session for `ttl` milliseconds.
bool has_expired(const Record& record, int64_t now, int64_t ttl);

}  // namespace runnel
