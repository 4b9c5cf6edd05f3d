#include "models/state/file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/config.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "state files are little-endian");

constexpr std::string_view kMagic = "RNLSTATE";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kCacheVersion = 2;   // with caches
constexpr uint32_t kRecentVersion = 3;  // with recent values, with or without caches
constexpr size_t kStartBytes = 16;      // magic, version, size of the header
constexpr size_t kNumberBytes = 4;
constexpr int64_t kMostHeaderBytes = 1 << 20;
constexpr int64_t kMostParts = 2048;
constexpr int64_t kMostDimensions = 8;
constexpr int64_t kMostPosition = int64_t{1} << 53;  // every JSON reader represents it exactly
constexpr int64_t kMostTime = int64_t{1} << 40;      // in seconds since 1970
constexpr size_t kMostIdBytes = 128;
constexpr const char* kFile = "state file";
constexpr JsonLimits kHeaderLimits = {.bytes = kMostHeaderBytes, .values = 1 << 14, .depth = 5};
constexpr int64_t kMostValueBytes = 192;  // of a JSON value without its text, at most
static_assert(2 * kMostHeaderBytes + kHeaderLimits.values * kMostValueBytes <= kStateHeaderMemory,
              "the text of a header, its copies in the values, and the values");
constexpr auto kTypes = std::to_array<Choice<DType>>(
    {{"f32", DType::kF32}, {"i32", DType::kI32}, {"bf16", DType::kBF16}});

std::string number_text(uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

uint32_t number_of(std::string_view text) {
  uint32_t number = 0;
  std::memcpy(&number, text.data(), sizeof(number));
  return number;
}

uint32_t checksum_of(uint32_t before, std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<uint32_t>(crc32_z(before, data, bytes.size()));
}

std::string hex32(uint32_t number) { return hex(uint64_t{number}).substr(8); }

Status refused(const std::string& what) { return invalid_argument("the state file " + what); }

std::string header_json(const std::string& model, const StateLayout& layout,
                        const StateImage& image, std::span<const int32_t> recent,
                        const SealKey* key, const SealTerms& terms,
                        std::span<const StatePart> parts) {
  OrderedJson json = {{"model", model}, {"numerics", layout.numerics}};
  json["position"] = image.position;
  if (image.pending != kNoValue) json["pending"] = image.pending;
  if (!recent.empty()) json["recent"] = recent;
  if (key != nullptr) {
    json["seal_key"] = key->id;
    if (!terms.owner.empty()) json["owner"] = terms.owner;
    if (terms.issued != 0) json["issued"] = terms.issued;
    if (terms.expires != 0) json["expires"] = terms.expires;
  }
  json["parts"] = OrderedJson::array();
  for (const StatePart& part : parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"type", name_of(kTypes, part.type)}, {"shape", part.shape}});
  }
  return json_text(json);
}

std::string read_text(const Fields& fields, Faults& faults, const char* key) {
  const std::string expected = "text of 1 to " + std::to_string(kMostIdBytes) + " bytes";
  const Json* member = fields.require(key, expected);
  if (member == nullptr) return "";
  const bool is_text = member->is_string();
  const std::string text = is_text ? member->get<std::string>() : "";
  if (text.empty() || text.size() > kMostIdBytes) {
    faults.add(fields.path(key), expected, is_text ? "another length" : describe(*member));
  }
  return text;
}

// Parts follow each other without gaps, from `offset` on. Sizes are bounded, so that no product of
// them overflows.
StatePart read_part(const Json& node, Faults& faults, const std::string& path, int64_t offset) {
  const Fields fields(faults, &node, path, {"name", "type", "shape"});
  StatePart part;
  part.name = read_text(fields, faults, "name");
  part.type = fields.choice("type", kTypes);
  part.offset = offset;
  const std::string expected = "1 to 8 sizes that are at least 1, of at most 2^40 bytes together";
  const Json* shape = fields.require("shape", expected);
  int64_t most = (int64_t{1} << 40) / 4;
  bool fits = shape != nullptr && shape->is_array() && !shape->empty() &&
              shape->size() <= static_cast<size_t>(kMostDimensions);
  for (size_t i = 0; fits && i < shape->size(); ++i) {
    const Json& size = (*shape)[i];
    fits = size.is_number_integer() && size >= 1 && size <= most;
    if (!fits) break;
    part.shape.push_back(size.get<int64_t>());
    most /= part.shape.back();
  }
  if (!fits && shape != nullptr) faults.add(fields.path("shape"), expected, describe(*shape));
  if (!fits) part.shape = {1};
  part.stride = part.entry_bytes();
  return part;
}

std::vector<StatePart> read_parts(const Json* node, Faults& faults) {
  std::vector<StatePart> parts;
  if (node == nullptr) return parts;
  if (!node->is_array() || node->size() > static_cast<size_t>(kMostParts)) {
    faults.add("parts", "at most " + std::to_string(kMostParts) + " parts", describe(*node));
    return parts;
  }
  int64_t offset = 0;
  for (size_t i = 0; i < node->size() && faults.ok(); ++i) {
    parts.push_back(read_part((*node)[i], faults, "parts[" + std::to_string(i) + "]", offset));
    offset += bytes_of(parts.back());
  }
  return parts;
}

SealTerms read_terms(const Fields& fields, Faults& faults) {
  SealTerms terms;
  if (fields.find("owner") != nullptr) terms.owner = read_text(fields, faults, "owner");
  if (fields.find("issued") != nullptr) terms.issued = fields.integer("issued", 1, kMostTime);
  if (fields.find("expires") != nullptr) terms.expires = fields.integer("expires", 1, kMostTime);
  return terms;
}

std::vector<int32_t> read_recent(const Json* node, Faults& faults) {
  std::vector<int32_t> values;
  if (node == nullptr) return values;
  const auto is_value = [](const Json& value) {
    return value.is_number_integer() && value >= 0 && value < kMaxVocabulary;
  };
  if (node->is_array() && std::ssize(*node) <= limits::kRecentValues.max &&
      std::ranges::all_of(*node, is_value)) {
    return node->get<std::vector<int32_t>>();
  }
  faults.add("recent",
             "at most " + std::to_string(limits::kRecentValues.max) + " values from 0 on, below " +
                 std::to_string(kMaxVocabulary),
             describe(*node));
  return values;
}

Result<StateHeader> parse_header(std::string_view text) {
  const Result<Json> json = parse_json(text, kFile, kHeaderLimits);
  if (!json.ok()) return json.status();
  const std::string file = kFile;
  Faults faults(file);
  const Fields fields(faults, &*json, "",
                      {"model", "numerics", "position", "pending", "recent", "seal_key", "owner",
                       "issued", "expires", "parts"});
  StateHeader header;
  header.model = read_text(fields, faults, "model");
  header.numerics = read_text(fields, faults, "numerics");
  header.position = fields.integer("position", 0, kMostPosition);
  if (fields.find("pending") != nullptr) {
    header.pending = fields.small("pending", 0, kMaxVocabulary - 1);
  }
  header.recent = read_recent(fields.find("recent"), faults);
  if (fields.find("seal_key") != nullptr) header.key = read_text(fields, faults, "seal_key");
  header.terms = read_terms(fields, faults);
  const SealTerms& terms = header.terms;
  if (header.key.empty() && (!terms.owner.empty() || terms.issued != 0 || terms.expires != 0)) {
    faults.add("seal_key", "the key of the seal that holds owner, issued and expires", "none");
  }
  header.parts = read_parts(fields.require("parts", "the parts of the state"), faults);
  if (!faults.ok()) return faults.status();
  return header;
}

// A program of an earlier release would ignore such a member, or could not read it.
Status check_version(uint32_t version, const StateHeader& header, const StateLayout& layout) {
  const auto later = [version](const char* what, uint32_t first) {
    return refused("is of version " + std::to_string(version) + " and has " + what +
                   "; expected version " + std::to_string(first) + " or later");
  };
  const auto is_bf16 = [](const StatePart& part) { return part.type == DType::kBF16; };
  if (!header.recent.empty() && version < kRecentVersion) {
    return later("recent values", kRecentVersion);
  }
  const bool has_caches = layout.page_bytes > 0 || std::ranges::any_of(header.parts, is_bf16);
  if (has_caches && version < kCacheVersion) return later("caches of attention", kCacheVersion);
  return {};
}

std::string written(const StatePart& part) {
  std::string text = name_of(kTypes, part.type) + std::string(" [");
  for (const int64_t size : part.shape) {
    if (text.back() != '[') text += ", ";
    text += std::to_string(size);
  }
  return quote(part.name) + " " + text + "]";
}

Status check_parts(const std::vector<StatePart>& found, const std::vector<StatePart>& expected) {
  if (found.size() != expected.size()) {
    return refused("has " + std::to_string(found.size()) + " parts; expected the " +
                   std::to_string(expected.size()) + " of this model's state");
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const StatePart& a = found[i];
    const StatePart& b = expected[i];
    if (a.name == b.name && a.type == b.type && a.shape == b.shape) continue;
    return refused("has " + written(a) + " as part " + std::to_string(i) + "; expected " +
                   written(b));
  }
  return {};
}

// The inputs consumed by a sequence with `position` known values: the last value is pending.
int64_t consumed_at(int64_t position) { return std::max<int64_t>(position - 1, 0); }

std::string listed(const SealKeys& keys) {
  std::string text = keys.size() == 1 ? "key " : "keys ";
  for (const SealKey& key : keys) text += (&key == keys.data() ? "'" : ", '") + key.id + "'";
  return text;
}

// Whether this caller may use the file now. Only a seal can restrict that.
Status check_terms(const SealTerms& terms, const SealKey& key, const StateTarget& target) {
  if (!terms.owner.empty() && terms.owner != owner_mark(key, target.caller)) {
    return {Code::kPermissionDenied,
            "the state file belongs to another caller; use that caller's key" +
                hint(", or have them export it with " + place_of(fields::kAnyOwner))};
  }
  if (terms.expires == 0 || target.now < terms.expires) return {};
  return {Code::kFailedPrecondition, "the state file expired " +
                                         std::to_string(target.now - terms.expires) +
                                         " seconds ago; export the state again"};
}

// Checks the values in the header.
Status check_known(const StateHeader& header, int vocabulary) {
  if (header.pending >= vocabulary) {
    return refused("has pending value " + std::to_string(header.pending) +
                   "; values of this model are below " + std::to_string(vocabulary));
  }
  if (header.recent.empty()) return {};
  const int32_t largest = std::ranges::max(header.recent);
  if (largest >= vocabulary) {
    return refused("has recent value " + std::to_string(largest) +
                   "; values of this model are below " + std::to_string(vocabulary));
  }
  if (std::ssize(header.recent) > header.position || header.recent.back() != header.pending) {
    return refused("has " + std::to_string(header.recent.size()) +
                   " recent values; expected as many as there are before position " +
                   std::to_string(header.position) + " at most, the pending one last");
  }
  return {};
}

Status check_seal(const StateHeader& header, const StateTarget& target) {
  if (target.any_seal) return {};
  const std::string& found = header.key;
  if (found.empty()) {
    if (!target.needs_seal) return {};
    return {Code::kFailedPrecondition,
            "the state file is not sealed, and this server takes none without its seal; export the "
            "state from a server with the same --seal-keys"};
  }
  if (target.keys == nullptr) {
    return {Code::kFailedPrecondition, "the state file is sealed with key " + quote(found) +
                                           ", and this server has none: start it with --seal-keys"};
  }
  const SealKey* const key = find_key(*target.keys, found);
  if (key != nullptr) return check_terms(header.terms, *key, target);
  return {Code::kFailedPrecondition, "the state file is sealed with key " + quote(found) +
                                         ", and this server has " + listed(*target.keys) +
                                         ": add that key to --seal-keys"};
}

}  // namespace

std::string model_digest(const Spec& spec, std::string_view weight_digest) {
  Spec nameless = spec;
  nameless.name.clear();
  Sha256 digest;
  const std::string json = spec_to_json(nameless);
  digest.add(std::as_bytes(std::span(json)));
  digest.add(std::as_bytes(std::span(weight_digest)));
  return hex(as_text(digest.finish()));
}

Status check_state(const StateHeader& header, const StateTarget& target) {
  if (Status s = check_seal(header, target); !s.ok()) return s;
  if (header.model != target.model) {
    return {Code::kFailedPrecondition, "the state file is of another model: its digest is " +
                                           quote(header.model) + ", and this one's is '" +
                                           target.model + "'; use the model that it came from"};
  }
  if (header.numerics != target.layout.numerics && !target.any_numerics) {
    return {Code::kFailedPrecondition,
            "the state file is of numerics id " + quote(header.numerics) +
                ", and this server computes " + quote(target.layout.numerics) +
                ": what follows would have other bits; set " + place_of(fields::kAllowInexact) +
                " to go on all the same"};
  }
  const int64_t end = target.spec.max_length();
  if (end != 0 && header.position > end) {
    return refused(
        "has position " + std::to_string(header.position) + "; a sequence of this model ends at " +
        std::to_string(end) +
        (target.layout.page_bytes > 0 ? ": start the server with a larger --context" : ""));
  }
  const auto expected = travelling_parts(target.layout, consumed_at(header.position));
  if (Status s = check_parts(header.parts, expected); !s.ok()) return s;
  if ((header.position == 0) != (header.pending == kNoValue)) {
    return refused("has position " + std::to_string(header.position) +
                   (header.position == 0 ? " and a pending value; the first is known from 1 on"
                                         : " and no pending value; the last known one must be"));
  }
  return check_known(header, target.spec.vocabulary);
}

StateLayout layout_of(const StateHeader& header) {
  StateLayout layout = {.parts = header.parts, .numerics = header.numerics};
  for (const StatePart& part : header.parts) layout.state_bytes += bytes_of(part);
  return layout;
}

// --- Writing ---

StateWriter::StateWriter(std::string model, const StateLayout& layout, StateImage image,
                         const SealKey* key, const SealTerms& terms)
    : parts_(travelling_parts(layout, consumed_at(image.position))),
      image_(std::move(image)),
      seal_(key) {
  check(static_cast<int64_t>(image_.bytes.size()) == layout.state_bytes, "the bytes of one state");
  fold_logs(layout, consumed_at(image_.position), image_.bytes);
  clear_unused(layout, consumed_at(image_.position), image_.bytes);
  const auto recent = recent_values(layout, image_.position, image_.bytes);
  const std::string header = header_json(model, layout, image_, recent, key, terms, parts_);
  const uint32_t version = !recent.empty()         ? kRecentVersion
                           : layout.page_bytes > 0 ? kCacheVersion
                                                   : kVersion;
  due_ = std::string(kMagic) + number_text(version) +
         number_text(static_cast<uint32_t>(header.size())) + header;
  size_ = static_cast<int64_t>(due_.size() + kSealBytes);
  for (const StatePart& part : parts_) size_ += bytes_of(part) + int64_t{kNumberBytes};
}

std::string StateWriter::next(size_t most) {
  std::string out;
  out.reserve(most);
  while (out.size() < most) {
    const size_t before = out.size();
    append_piece(out, most - before);
    if (out.size() == before && due_.empty() && !walk_ && sealed_) break;
  }
  return out;
}

// Appends the next contiguous piece. After the last piece of a part, begins the next part or the
// seal instead.
void StateWriter::append_piece(std::string& out, size_t most) {
  if (!due_.empty()) {
    const std::string_view piece = std::string_view(due_).substr(0, most);
    if (!sealed_) seal_.add(std::as_bytes(std::span(piece)));
    out += piece;
    due_.erase(0, piece.size());
    return;
  }
  if (walk_) {
    const std::span<const std::byte> piece = walk_->next(static_cast<int64_t>(most));
    if (!piece.empty()) {
      seal_.add(piece);
      checksum_ = checksum_of(checksum_, piece);
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return;
    }
    due_ = number_text(checksum_);
    walk_.reset();
    ++part_;
    return;
  }
  if (part_ < parts_.size()) {
    walk_.emplace(parts_[part_], image_.bytes);
    checksum_ = 0;
  } else if (!sealed_) {
    due_ = as_text(seal_.finish());
    sealed_ = true;
  }
}

// --- Reading ---

StateReader::StateReader(Accept accept, const SealKeys* keys, bool keeps_subnormal)
    : accept_(std::move(accept)), keys_(keys), keeps_subnormal_(keeps_subnormal) {}

// Returns true once `count` bytes have been gathered.
bool StateReader::gather(std::span<const std::byte>& bytes, size_t count) {
  const size_t more = std::min(bytes.size(), count - gathered_.size());
  gathered_.append(reinterpret_cast<const char*>(bytes.data()), more);
  bytes = bytes.subspan(more);
  return gathered_.size() == count;
}

Status StateReader::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (Status s = take(bytes); !s.ok()) return s;
  }
  return {};
}

Status StateReader::take(std::span<const std::byte>& bytes) {
  switch (stage_) {
    case Stage::kStart:
      return gather(bytes, kStartBytes) ? take_start() : Status();
    case Stage::kHeader:
      return gather(bytes, header_bytes_) ? take_header() : Status();
    case Stage::kPart:
      take_part(bytes);
      return {};
    case Stage::kChecksum:
      return gather(bytes, kNumberBytes) ? take_checksum() : Status();
    case Stage::kSeal:
      if (gather(bytes, kSealBytes)) stage_ = Stage::kEnd;
      return {};
    case Stage::kEnd:
      break;
  }
  return refused("goes on after its end");
}

Status StateReader::take_start() {
  start_ = std::exchange(gathered_, {});
  const std::string_view start = start_;
  if (start.substr(0, kMagic.size()) != kMagic) {
    return refused("does not begin as one does: it begins with " +
                   quote(start.substr(0, kMagic.size())) + ", expected '" + std::string(kMagic) +
                   "'");
  }
  const uint32_t version = number_of(start.substr(kMagic.size()));
  if (version < kVersion || version > kRecentVersion) {
    return refused("is of version " + std::to_string(version) + "; expected " +
                   std::to_string(kVersion) + " to " + std::to_string(kRecentVersion));
  }
  header_bytes_ = number_of(start.substr(kMagic.size() + kNumberBytes));
  if (header_bytes_ == 0 || header_bytes_ > static_cast<size_t>(kMostHeaderBytes)) {
    return refused("has a header of " + std::to_string(header_bytes_) + " bytes; expected 1 to " +
                   std::to_string(kMostHeaderBytes));
  }
  stage_ = Stage::kHeader;
  gathered_.reserve(header_bytes_);
  return {};
}

Status StateReader::take_header() {
  const std::string text = std::exchange(gathered_, {});
  Result<StateHeader> header = parse_header(text);
  if (!header.ok()) return header.status();
  Result<StateLayout> layout = accept_(*header);
  if (!layout.ok()) return layout.status();
  const uint32_t version = number_of(std::string_view(start_).substr(kMagic.size()));
  if (Status s = check_version(version, *header, *layout); !s.ok()) return s;
  parts_ = travelling_parts(*layout, consumed_at(header->position));
  image_ = {.position = header->position, .pending = header->pending, .bytes = {}};
  image_.bytes.resize(static_cast<size_t>(layout->state_bytes));
  set_recent_values(*layout, header->position, header->recent, image_.bytes);
  if (keys_ != nullptr) key_ = find_key(*keys_, header->key);
  seal_.emplace(key_);
  seal_->add(std::as_bytes(std::span(start_)));
  seal_->add(std::as_bytes(std::span(text)));
  header_ = std::move(*header);
  begin_part();
  return {};
}

// Moves on to part_, or to the seal after the last part.
void StateReader::begin_part() {
  if (part_ == parts_.size()) {
    stage_ = Stage::kSeal;
    return;
  }
  stage_ = Stage::kPart;
  checksum_ = 0;
  walk_.emplace(parts_[part_], image_.bytes);
}

void StateReader::take_part(std::span<const std::byte>& bytes) {
  const std::span<std::byte> room = walk_->next(static_cast<int64_t>(bytes.size()));
  if (room.empty()) {
    stage_ = Stage::kChecksum;
    return;
  }
  const std::span<const std::byte> taken = bytes.first(room.size());
  std::memcpy(room.data(), taken.data(), taken.size());
  checksum_ = checksum_of(checksum_, taken);
  seal_->add(taken);
  bytes = bytes.subspan(taken.size());
}

Status StateReader::take_checksum() {
  const std::string found = std::exchange(gathered_, {});
  const StatePart& part = parts_[part_];
  if (number_of(found) != checksum_) {
    return refused("is damaged in part " + quote(part.name) + ": its CRC-32 is " +
                   hex32(checksum_) + ", and the file says " + hex32(number_of(found)));
  }
  seal_->add(std::as_bytes(std::span(found)));
  const PartNumbers numbers =
      keeps_subnormal_ ? examine_numbers(part, image_.bytes) : flush_subnormals(part, image_.bytes);
  if (!numbers.finite) {
    return refused("has a number in part " + quote(part.name) + " that is not finite");
  }
  subnormal_ += numbers.subnormal;
  ++part_;
  begin_part();
  return {};
}

Result<StateImage> StateReader::finish() {
  if (stage_ != Stage::kEnd) return refused("ends too early: it is cut short");
  const auto sealed = seal_->finish();
  const bool unchecked = !header_->key.empty() && key_ == nullptr;
  if (!unchecked && !is_same_seal(sealed, gathered_)) {
    return refused(header_->key.empty()
                       ? "is damaged: its SHA-256 is not what it says"
                       : "was changed after it was sealed with key " + quote(header_->key));
  }
  return std::move(image_);
}

}  // namespace runnel
