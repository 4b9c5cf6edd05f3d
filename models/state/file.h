// State files (docs/state.md): one state, what it is a state of, and what closes it. Written in one
// pass and read in one, in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "models/spec.h"
#include "models/state/form.h"
#include "models/state/seal.h"

namespace runnel {

// A state read from a slot, with the parts of its sequence that a slot does not hold.
struct StateImage {
  int64_t position = 0;          // of the next value: as many are known
  int32_t pending = kNoValue;    // the last known value, not consumed; none at position 0 alone
  std::vector<std::byte> bytes;  // as Model::read() gives and Model::write() takes them
};

// The most memory that a StateReader uses, beside the state itself, until it has the header.
inline constexpr int64_t kStateHeaderMemory = int64_t{5} << 20;

// What a seal says beside the state.
struct SealTerms {
  std::string owner = {};  // owner_mark() of the only caller who may use it; empty: any may
  int64_t issued = 0;      // seconds since 1970; 0: a file of an earlier release
  int64_t expires = 0;     // seconds since 1970, from when on it is refused; 0: never
};

// The header of a state file.
struct StateHeader {
  std::string model;     // model_digest(), 64 hexadecimal digits
  std::string numerics;  // the numerics id under which the state came to be
  int64_t position = 0;
  int32_t pending = kNoValue;
  std::vector<int32_t> recent;   // the last values before `position`, oldest first
  std::string key;               // id of the key that sealed the file; empty: it is not sealed
  SealTerms terms;               // of the seal
  std::vector<StatePart> parts;  // names, types and shapes; places as without gaps
};

// SHA-256 of a bundle's config.json as the server understands it, its name aside, and of the digest
// of its weights.
std::string model_digest(const Spec& spec, std::string_view weight_digest);

class StateWriter {
 public:
  // A file of `image`, a state in `layout` of the model with that digest. `key` null: not sealed,
  // and without `terms`; it outlives the writer.
  StateWriter(std::string model, const StateLayout& layout, StateImage image, const SealKey* key,
              const SealTerms& terms = {});

  // Of the whole file.
  int64_t size() const { return size_; }
  // At most `most` bytes more, which are at least 1; empty at the end.
  std::string next(size_t most);

 private:
  void append_piece(std::string& out, size_t most);

  const std::vector<StatePart> parts_;
  StateImage image_;
  Seal seal_;
  std::string due_;  // to be written before all else
  int64_t size_ = 0;
  size_t part_ = 0;               // the one being written; parts_.size(): none
  std::optional<PartWalk> walk_;  // of that part
  uint32_t checksum_ = 0;         // of that part, so far
  bool sealed_ = false;
};

// Reads a file and keeps nothing of one that is refused.
class StateReader {
 public:
  // Says how a state with this header is to lie in memory, or why it is refused. Its parts must be
  // those of the header.
  using Accept = std::function<Result<StateLayout>(const StateHeader&)>;
  // The seal of a file is checked if its key is among `keys`, which may be null. Both outlive the
  // reader.
  StateReader(Accept accept, const SealKeys* keys);

  // Takes the next bytes. INVALID_ARGUMENT for what is damaged or no state file, and what `accept`
  // says; nothing may follow then. Takes memory once, for the state that `accept` has let in.
  Status add(std::span<const std::byte> bytes);
  // Once, at the end of the file. INVALID_ARGUMENT where it is cut short, or was changed.
  Result<StateImage> finish();

  // Once add() has accepted it.
  const std::optional<StateHeader>& header() const { return header_; }
  // Numbers that were made zeros, because they were too small for full precision.
  int64_t subnormal() const { return subnormal_; }

 private:
  enum class Stage { kStart, kHeader, kPart, kChecksum, kSeal, kEnd };

  bool gather(std::span<const std::byte>& bytes, size_t count);
  Status take(std::span<const std::byte>& bytes);
  Status take_start();
  Status take_header();
  void take_part(std::span<const std::byte>& bytes);
  Status take_checksum();
  void begin_part();

  const Accept accept_;
  const SealKeys* const keys_;
  const SealKey* key_ = nullptr;  // of the file's seal
  Stage stage_ = Stage::kStart;
  std::string gathered_;
  size_t header_bytes_ = 0;
  std::string start_;  // what precedes the header
  std::optional<StateHeader> header_;
  std::optional<Seal> seal_;
  std::vector<StatePart> parts_;  // as the layout has them
  StateImage image_;
  size_t part_ = 0;
  std::optional<PartWalk> walk_;
  uint32_t checksum_ = 0;  // of the part, so far
  int64_t subnormal_ = 0;
};

// What an import must match.
struct StateTarget {
  const Spec& spec;
  const StateLayout& layout;
  const std::string& model;        // model_digest()
  bool any_numerics = false;       // takes states of other numerics ids
  bool needs_seal = false;         // refuses files that are not sealed
  bool any_seal = false;           // takes files whatever their seal says
  const SealKeys* keys = nullptr;  // of this server; null: none
  std::string_view caller = {};    // the name of the caller who brings the file
  int64_t now = 0;                 // seconds since 1970
};

// OK, or FAILED_PRECONDITION (of another model, numerics id or seal, or expired), PERMISSION_DENIED
// (of another owner), INVALID_ARGUMENT (parts, position or pending value that are not of this
// model).
Status check_state(const StateHeader& header, const StateTarget& target);

// The layout of a state whose parts stand without gaps, as the header says.
StateLayout layout_of(const StateHeader& header);

}  // namespace runnel
