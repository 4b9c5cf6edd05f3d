// State files (docs/state.md): one state, a header that describes it, and a checksum or seal at the
// end. A file is written and read in one pass, in pieces of any size.
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
  int64_t position = 0;          // of the next value, and so the number of known values
  int32_t pending = kNoValue;    // the last known value, not consumed yet; none only at position 0
  std::vector<std::byte> bytes;  // in the form of Model::read() and Model::write()
};

// The maximum memory that a StateReader uses until it has the header, in addition to the state.
inline constexpr int64_t kStateHeaderMemory = int64_t{5} << 20;

// The terms that a seal protects in addition to the state.
struct SealTerms {
  std::string owner = {};  // owner_mark() of the only caller who may use it; empty: every caller
  int64_t issued = 0;      // seconds since 1970; 0: written by an earlier release
  int64_t expires = 0;     // seconds since 1970, when the file expires; 0: never
};

// The header of a state file.
struct StateHeader {
  std::string model;     // model_digest(), 64 hexadecimal digits
  std::string numerics;  // the numerics id with which the state was computed
  int64_t position = 0;
  int32_t pending = kNoValue;
  std::vector<int32_t> recent;   // the last values before `position`, oldest first
  std::string key;               // id of the key that sealed the file; empty: it is not sealed
  SealTerms terms;               // of the seal
  std::vector<StatePart> parts;  // names, types and shapes; offsets as if there were no gaps
};

// SHA-256 of two things: a bundle's config.json as the server reads it, without the name, and the
// digest of the bundle's weights.
std::string model_digest(const Spec& spec, std::string_view weight_digest);

class StateWriter {
 public:
  // Writes a file of `image`, a state in `layout`. `model` is the model_digest(). With `key` the
  // file is sealed, and has `terms`. `key` must outlive the writer; null: not sealed.
  StateWriter(std::string model, const StateLayout& layout, StateImage image, const SealKey* key,
              const SealTerms& terms = {});

  // The size of the whole file.
  int64_t size() const { return size_; }
  // The next bytes of the file, at most `most`, which must be at least 1. Empty at the end.
  std::string next(size_t most);

 private:
  void append_piece(std::string& out, size_t most);

  const std::vector<StatePart> parts_;
  StateImage image_;
  Seal seal_;
  std::string due_;  // bytes to be written first
  int64_t size_ = 0;
  size_t part_ = 0;               // the index of the part being written; parts_.size(): none
  std::optional<PartWalk> walk_;  // of that part
  uint32_t checksum_ = 0;         // of the written bytes of that part
  bool sealed_ = false;
};

// Reads a file. If the file is refused, nothing of it is kept.
class StateReader {
 public:
  // Returns the layout in memory for a state with this header, or the reason to refuse it. The
  // layout must have the parts of the header.
  using Accept = std::function<Result<StateLayout>(const StateHeader&)>;
  // The seal of a file is checked if its key is among `keys`, which may be null. `accept` is called
  // with the header. `keys` must outlive the reader. Subnormal numbers become zeros, unless
  // `keeps_subnormal`: a server has computed the state, and its bits must stay.
  StateReader(Accept accept, const SealKeys* keys, bool keeps_subnormal = false);

  // Takes the next bytes. INVALID_ARGUMENT if they are damaged or are not a state file, or the
  // status of `accept`. After an error nothing more may be added. Memory is allocated once, for a
  // state that `accept` has accepted.
  Status add(std::span<const std::byte> bytes);
  // To be called once, at the end of the file. INVALID_ARGUMENT if the file is cut short, or was
  // changed.
  Result<StateImage> finish();

  // The header. None until add() has accepted it.
  const std::optional<StateHeader>& header() const { return header_; }
  // How many numbers were subnormal.
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
  const bool keeps_subnormal_;
  const SealKey* key_ = nullptr;  // of the file's seal
  Stage stage_ = Stage::kStart;
  std::string gathered_;
  size_t header_bytes_ = 0;
  std::string start_;  // the bytes before the header
  std::optional<StateHeader> header_;
  std::optional<Seal> seal_;
  std::vector<StatePart> parts_;  // of the layout
  StateImage image_;
  size_t part_ = 0;
  std::optional<PartWalk> walk_;
  uint32_t checksum_ = 0;  // of the part's bytes that were read
  int64_t subnormal_ = 0;
};

// The model, the server and the caller that an imported state must match.
struct StateTarget {
  const Spec& spec;
  const StateLayout& layout;
  const std::string& model;        // model_digest()
  bool any_numerics = false;       // accepts states of other numerics ids
  bool needs_seal = false;         // refuses files that are not sealed
  bool any_seal = false;           // accepts files with any seal or none
  const SealKeys* keys = nullptr;  // of this server; null: none
  std::string_view caller = {};    // the name of the caller who loads the file
  int64_t now = 0;                 // seconds since 1970
};

// OK if the state may be loaded. Else FAILED_PRECONDITION (another model, numerics id or seal, or
// expired), PERMISSION_DENIED (another owner) or INVALID_ARGUMENT (the model has no such parts,
// position or pending value).
Status check_state(const StateHeader& header, const StateTarget& target);

// The layout of a state whose parts follow each other without gaps, as in the header.
StateLayout layout_of(const StateHeader& header);

}  // namespace runnel
