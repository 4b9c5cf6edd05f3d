#include "models/state/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

// Two layers of two heads, with interleaved parts, and 8 bytes that belong to no part.
StateLayout small_layout() {
  StateLayout layout = {.state_bytes = 2 * 2 * 32 + 8, .parts = {}, .numerics = "cpu/test"};
  for (int64_t layer = 0; layer < 2; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    layout.parts.push_back({name + ".S", DType::kF32, {2, 3, 2}, layer * 64, 32});
    layout.parts.push_back({name + ".z", DType::kF32, {2, 2}, layer * 64 + 24, 32});
  }
  return layout;
}

std::vector<float> numbers_of(const StateImage& image) {
  std::vector<float> numbers(image.bytes.size() / 4);
  std::memcpy(numbers.data(), image.bytes.data(), image.bytes.size());
  return numbers;
}

class StateFileTest : public testing::Test {
 protected:
  StateFileTest() : spec_(small_symbol_spec()), model_(model_digest(spec_, "weights")) {
    spec_.positions = 100;
    model_ = model_digest(spec_, "weights");
    image_.position = 7;
    image_.pending = 3;
    image_.bytes.resize(static_cast<size_t>(layout_.state_bytes));
    for (int i = 0; i < 32; ++i) put(i, 0.5F + static_cast<float>(i));
  }

  void put(int at, float number) { std::memcpy(image_.bytes.data() + at * 4, &number, 4); }

  std::string file(const SealKey* key = nullptr, size_t most = 1000,
                   const SealTerms& terms = {}) const {
    StateWriter writer(model_, layout_, image_, key, terms);
    std::string bytes;
    for (std::string piece = writer.next(most); !piece.empty(); piece = writer.next(most)) {
      EXPECT_LE(piece.size(), most);
      bytes += piece;
    }
    EXPECT_EQ(std::ssize(bytes), writer.size());
    return bytes;
  }

  StateTarget target() const { return {.spec = spec_, .layout = layout_, .model = model_}; }

  static Result<StateImage> read(const std::string& bytes, const StateTarget& target,
                                 size_t most = 1000, int64_t* subnormal = nullptr) {
    StateReader reader(
        [&](const StateHeader& header) -> Result<StateLayout> {
          if (Status s = check_state(header, target); !s.ok()) return s;
          return target.layout;
        },
        target.keys);
    for (size_t at = 0; at < bytes.size(); at += most) {
      const std::string piece = bytes.substr(at, most);
      if (Status s = reader.add(std::as_bytes(std::span(piece))); !s.ok()) return s;
    }
    Result<StateImage> image = reader.finish();
    if (subnormal != nullptr) *subnormal = reader.subnormal();
    return image;
  }
  std::string refusal(const std::string& bytes) const {
    return read(bytes, target()).status().message();
  }
  // The file after replacing `from` in its header by `to`, with a valid digest.
  std::string changed(const std::string& from, const std::string& to) const {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = file();
    bytes.resize(bytes.size() - kSealBytes);
    bytes.replace(bytes.find(from), from.size(), to);
    Seal seal(nullptr);
    seal.add(std::as_bytes(std::span(bytes)));
    return bytes + std::string(as_text(seal.finish()));
  }

  Spec spec_;
  StateLayout layout_ = small_layout();
  std::string model_;
  StateImage image_;
};

TEST_F(StateFileTest, AFileReadsBackInPiecesOfAnySize) {
  const std::string whole = file();
  for (const size_t most : {1UL, 7UL, 64UL, 100000UL}) {
    EXPECT_EQ(file(nullptr, most), whole);
    const auto image = read(whole, target(), most);
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    EXPECT_EQ(image->bytes, image_.bytes);
    EXPECT_EQ(image->position, 7);
    EXPECT_EQ(image->pending, 3);
  }
}

// docs/state.md has these offsets.
TEST_F(StateFileTest, TheBytesAreAsDocumented) {
  const std::string bytes = file();
  EXPECT_EQ(bytes.substr(0, 8), "RNLSTATE");
  EXPECT_EQ(bytes.substr(8, 4), std::string("\1\0\0\0", 4));
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 12, 4);
  EXPECT_EQ(bytes.substr(16, size),
            "{\"model\":\"" + model_ +
                "\",\"numerics\":\"cpu/test\",\"position\":7,\"pending\":3,\"parts\":["
                R"({"name":"layers.0.S","type":"f32","shape":[2,3,2]},)"
                R"({"name":"layers.0.z","type":"f32","shape":[2,2]},)"
                R"({"name":"layers.1.S","type":"f32","shape":[2,3,2]},)"
                R"({"name":"layers.1.z","type":"f32","shape":[2,2]}]})");
  float number = 0;
  std::memcpy(&number, bytes.data() + 16 + size, 4);
  EXPECT_EQ(number, 0.5F);
  std::memcpy(&number, bytes.data() + 16 + size + 6 * 4, 4);  // of the second head
  EXPECT_EQ(number, 8.5F);
  EXPECT_EQ(bytes.size(), 16 + size + 4 * 32 + 4 * 4 + 32);
}

// The layout with room for the last four values added.
StateLayout with_recent(StateLayout layout) {
  layout.recent = 4;
  layout.recent_offset = layout.state_bytes;
  layout.parts.push_back({kRecentPart, DType::kI32, {4}, layout.state_bytes, 4});
  layout.state_bytes += 16;
  return layout;
}

TEST_F(StateFileTest, RecentValuesAreStoredInTheHeader) {
  const std::string without = file();  // version 1
  layout_ = with_recent(layout_);
  image_.bytes.resize(static_cast<size_t>(layout_.state_bytes));
  EXPECT_EQ(file(), without) << "a ring without values";
  set_recent_values(layout_, 7, std::vector<int32_t>{9, 8, 7, 5, 3}, image_.bytes);
  const std::string whole = file();
  EXPECT_EQ(whole[8], 3);
  EXPECT_NE(whole.find(R"("pending":3,"recent":[8,7,5,3],"parts")"), std::string::npos);
  const auto image = read(whole, target());
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(image->bytes, image_.bytes);

  const auto old = read(without, target());
  ASSERT_TRUE(old.ok()) << old.status().to_string();
  EXPECT_TRUE(recent_values(layout_, 7, old->bytes).empty());

  const StateLayout none = small_layout();  // of a server that keeps no recent values
  EXPECT_TRUE(read(whole, {.spec = spec_, .layout = none, .model = model_}).ok());
}

TEST_F(StateFileTest, ImpossibleRecentValuesAreRefused) {
  layout_ = with_recent(layout_);
  image_.bytes.resize(static_cast<size_t>(layout_.state_bytes));
  set_recent_values(layout_, 7, std::vector<int32_t>{8, 7, 5, 3}, image_.bytes);
  EXPECT_THAT(refusal(changed("[8,7,5,3]", "[8,7,5,4]")), HasSubstr("the pending one last"));
  EXPECT_THAT(refusal(changed("[8,7,5,3]", "[8,11,,3]")), HasSubstr("state file"));
  EXPECT_THAT(refusal(changed("[8,7,5,3]", "[ 99,5,3]")),
              HasSubstr("recent value 99; values of this model are below 11"));
  EXPECT_THAT(refusal(changed("[8,7,5,3]", "[-8,5, 3]")), HasSubstr("recent"));
  EXPECT_THAT(refusal(changed("\"position\":7", "\"position\":3")),
              HasSubstr("before position 3 at most"));
}

TEST_F(StateFileTest, AnEarlierVersionHasNoMembersOfALaterOne) {
  layout_.parts[0].type = DType::kBF16;
  EXPECT_EQ(refusal(file()),
            "the state file is of version 1 and has caches of attention; expected version 2 or "
            "later");
  layout_ = small_layout();
  layout_.page_bytes = 1;
  EXPECT_EQ(file()[8], 2);
  EXPECT_EQ(refusal(file()), "");
  EXPECT_THAT(refusal(changed("RNLSTATE\2", "RNLSTATE\1")), HasSubstr("has caches of attention"));
  layout_ = with_recent(small_layout());
  image_.bytes.resize(static_cast<size_t>(layout_.state_bytes));
  set_recent_values(layout_, 7, std::vector<int32_t>{8, 7, 5, 3}, image_.bytes);
  for (const char* const earlier : {"RNLSTATE\1", "RNLSTATE\2"}) {
    EXPECT_THAT(refusal(changed("RNLSTATE\3", earlier)), HasSubstr("has recent values"));
  }
}

TEST_F(StateFileTest, EveryChangedByteIsDetected) {
  const std::string whole = file();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    EXPECT_FALSE(read(bytes, target()).ok()) << at;
  }
}

TEST_F(StateFileTest, AHeaderOfManyValuesIsRefused) {
  std::string header = "[";
  for (int i = 0; i < 20'000; ++i) header += "0,";
  header += "0]";
  const auto size = static_cast<uint32_t>(header.size());
  std::string bytes = file().substr(0, 12);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  EXPECT_THAT(refusal(bytes + header), HasSubstr("more than 16384 JSON values"));
}

TEST_F(StateFileTest, EveryFileThatIsCutShortIsRefused) {
  const std::string whole = file();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read(whole.substr(0, size), target()).ok()) << size;
  }
  EXPECT_EQ(refusal(whole.substr(0, 40)), "the state file ends too early: it is cut short");
  EXPECT_EQ(refusal(whole + "x"), "the state file goes on after its end");
}

TEST_F(StateFileTest, NamesTheFaultOfAFile) {
  std::string bytes = file();
  EXPECT_EQ(
      refusal("PK\3\4" + bytes),
      "the state file does not begin as one does: it begins with 'PK\\x03\\x04RNLS', expected "
      "'RNLSTATE'");
  bytes[8] = 4;
  EXPECT_EQ(refusal(bytes), "the state file is of version 4; expected 1 to 3");
  bytes = file();
  bytes[15] = 1;
  EXPECT_THAT(refusal(bytes), HasSubstr("bytes; expected 1 to 1048576"));
  bytes = file();
  bytes[bytes.size() - 40] ^= 1;
  EXPECT_THAT(refusal(bytes), HasSubstr("is damaged in part 'layers.1.z': its CRC-32 is "));
  bytes = file();
  bytes.back() ^= 1;
  EXPECT_EQ(refusal(bytes), "the state file is damaged: its SHA-256 is not what it says");
}

TEST_F(StateFileTest, AHeaderThatIsNotOfThisModelIsRefused) {
  EXPECT_THAT(refusal(changed("\"position\":7", "\"position\":-")), HasSubstr("state file"));
  EXPECT_THAT(refusal(changed("\"position\":7", "\"position\":0")),
              HasSubstr("has position 0 and a pending value"));
  EXPECT_THAT(refusal(changed("\"pending\":3,\"parts\"", "\"pending\":9,\"parts\"")), "");
  EXPECT_THAT(refusal(changed("layers.0.z", "layers.0.y")),
              HasSubstr("has 'layers.0.y' f32 [2, 2] as part 1; expected 'layers.0.z' f32 [2, 2]"));
  EXPECT_THAT(refusal(changed("[2,2]},{", "[2,3]},{")), HasSubstr("f32 [2, 3] as part 1"));
  EXPECT_THAT(refusal(changed("[2,2]},{", "[0,2]},{")), HasSubstr("sizes that are at least 1"));
  EXPECT_THAT(refusal(changed("\"f32\"", "\"f64\"")), HasSubstr("'f32' or 'i32'"));
  EXPECT_THAT(refusal(changed("\"pending\"", "\"pendinG\"")), HasSubstr("pendinG"));
  image_.position = 102;
  EXPECT_THAT(refusal(file()), HasSubstr("has position 102; a sequence of this model ends at 101"));
  image_.position = 7;
  image_.pending = 11;
  EXPECT_THAT(refusal(file()), HasSubstr("pending value 11; values of this model are below 11"));
}

TEST_F(StateFileTest, AnotherModelOrNumericsIdIsRefused) {
  const std::string other = model_digest(spec_, "other weights");
  StateTarget elsewhere = {.spec = spec_, .layout = layout_, .model = other};
  const auto found = read(file(), elsewhere);
  EXPECT_EQ(found.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(found.status().message(), HasSubstr("is of another model: its digest is '" + model_));

  StateLayout gpu = layout_;
  gpu.numerics = "cuda/test";
  StateTarget there = {.spec = spec_, .layout = gpu, .model = model_};
  const auto exact = read(file(), there);
  EXPECT_EQ(exact.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(exact.status().message(), HasSubstr("'cpu/test', and this server computes"));
  there.any_numerics = true;
  EXPECT_TRUE(read(file(), there).ok());
}

TEST_F(StateFileTest, TheDigestDoesNotDependOnTheNameOfTheModel) {
  Spec renamed = spec_;
  renamed.name = "other";
  EXPECT_EQ(model_digest(renamed, "weights"), model_);
  Spec changed = spec_;
  changed.positions = 99;
  EXPECT_NE(model_digest(changed, "weights"), model_);
}

TEST_F(StateFileTest, ASealIsValidOnlyWithItsKey) {
  const SealKeys keys = {make_seal_key(std::string(32, 'k'))};
  const SealKey& key = keys[0];
  const SealKey other = make_seal_key(std::string(32, 'o'));
  StateTarget sealed = target();
  sealed.keys = &keys;
  sealed.needs_seal = true;
  EXPECT_TRUE(read(file(&key), sealed).ok());
  EXPECT_THAT(read(file(), sealed).status().message(), HasSubstr("is not sealed"));
  EXPECT_THAT(
      read(file(&other), sealed).status().message(),
      HasSubstr("is sealed with key '" + other.id + "', and this server has key '" + key.id));
  EXPECT_THAT(refusal(file(&key)),
              HasSubstr("and this server has none: start it with --seal-keys"));

  // A forger who knows the format but not the key.
  std::string bytes = file(&key);
  const size_t at = bytes.find("\"position\":7") + 11;
  bytes[at] = '8';
  EXPECT_EQ(read(bytes, sealed).status().message(),
            "the state file was changed after it was sealed with key '" + key.id + "'");
  EXPECT_EQ(read(bytes, sealed).status().code(), Code::kInvalidArgument);
}

// For a change of keys: a server with a new key still opens files that the old key has sealed.
TEST_F(StateFileTest, EveryKeyOfAServerOpensTheFilesThatItSealed) {
  const SealKeys keys = {make_seal_key(std::string(32, 'n')), make_seal_key(std::string(32, 'o'))};
  StateTarget sealed = target();
  sealed.keys = &keys;
  sealed.needs_seal = true;
  EXPECT_TRUE(read(file(&keys[0]), sealed).ok());
  EXPECT_TRUE(read(file(&keys[1]), sealed).ok());
  const SealKey lost = make_seal_key(std::string(32, 'l'));
  EXPECT_THAT(read(file(&lost), sealed).status().message(),
              HasSubstr("has keys '" + keys[0].id + "', '" + keys[1].id + "': add that key"));
  std::string bytes = file(&keys[1]);
  bytes[bytes.find("\"position\":7") + 11] = '8';
  EXPECT_THAT(read(bytes, sealed).status().message(), HasSubstr("changed after it was sealed"));
}

TEST_F(StateFileTest, ASealBindsItsOwnerAndItsExpiry) {
  const SealKeys keys = {make_seal_key(std::string(32, 'k'))};
  const SealTerms terms = {.owner = owner_mark(keys[0], "alice"), .issued = 1000, .expires = 2000};
  const std::string bytes = file(&keys[0], 1000, terms);
  EXPECT_EQ(bytes.find("alice"), std::string::npos);
  StateTarget sealed = target();
  sealed.keys = &keys;
  sealed.caller = "alice";
  sealed.now = 1999;
  EXPECT_TRUE(read(bytes, sealed).ok());
  sealed.now = 2000;
  EXPECT_EQ(read(bytes, sealed).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(read(bytes, sealed).status().message(), HasSubstr("expired 0 seconds ago"));
  sealed.now = 1999;
  for (const char* const other : {"bob", ""}) {
    sealed.caller = other;
    EXPECT_EQ(read(bytes, sealed).status().code(), Code::kPermissionDenied);
  }
  std::string forged = bytes;
  const std::string bob = owner_mark(keys[0], "bob");
  forged.replace(forged.find(terms.owner), bob.size(), bob);
  sealed.caller = "bob";
  EXPECT_THAT(read(forged, sealed).status().message(), HasSubstr("changed after it was sealed"));
  sealed.any_seal = true;  // for an operator
  sealed.now = 3000;
  EXPECT_TRUE(read(bytes, sealed).ok());
}

TEST_F(StateFileTest, OwnerAndTimeWithoutASealAreRefused) {
  const SealKey key = make_seal_key(std::string(32, 'k'));
  std::string bytes = file(&key, 1000, {.owner = owner_mark(key, "alice")});
  bytes.resize(bytes.size() - kSealBytes);
  const std::string member = "\"seal_key\":\"" + key.id + "\",";
  bytes.replace(bytes.find(member), member.size(), std::string(member.size(), ' '));
  Seal digest(nullptr);
  digest.add(std::as_bytes(std::span(bytes)));
  EXPECT_THAT(refusal(bytes + std::string(as_text(digest.finish()))), HasSubstr("seal_key"));
}

TEST_F(StateFileTest, NumbersThatAreNotFiniteAreRefused) {
  for (const float number :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    put(9, number);
    EXPECT_EQ(refusal(file()),
              "the state file has a number in part 'layers.0.S' that is not finite");
  }
}

// Processors take many times longer for such numbers, so they become zeros.
TEST_F(StateFileTest, SubnormalNumbersBecomeZeros) {
  put(1, 1e-40F);
  put(2, -std::numeric_limits<float>::denorm_min());
  put(3, std::numeric_limits<float>::min());
  put(4, -0.0F);
  int64_t subnormal = 0;
  const auto image = read(file(), target(), 1000, &subnormal);
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(subnormal, 2);
  const std::vector<float> numbers = numbers_of(*image);
  EXPECT_EQ(numbers[1], 0.0F);
  EXPECT_EQ(numbers[2], 0.0F);
  EXPECT_EQ(numbers[3], std::numeric_limits<float>::min());
  EXPECT_TRUE(std::signbit(numbers[4]));
}

TEST(SealKey, AKeyFileMustBeUnreadableForOthers) {
  const TempDir folder;
  const std::string path = folder.path() + "/seal_key";
  write_file(path, std::string(32, 'k'));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(read_seal_key(path).status().message(), HasSubstr("others may read or change it"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_seal_key(path)->id, make_seal_key(std::string(32, 'k')).id);
  write_file(path, "short");
  EXPECT_THAT(read_seal_key(path).status().message(), HasSubstr("expected 32 to 4096 bytes"));
}

TEST(SealKey, SeveralKeysAreReadInOrder) {
  const TempDir folder;
  const std::string a = folder.path() + "/seal_a";
  const std::string b = folder.path() + "/seal_b";
  for (const std::string& path : {a, b}) {
    write_file(path, std::string(32, path.back()));
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }
  const Result<SealKeys> keys = read_seal_keys(a + "," + b);
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].id, make_seal_key(std::string(32, 'a')).id);
  EXPECT_EQ(find_key(*keys, make_seal_key(std::string(32, 'b')).id), &(*keys)[1]);
  EXPECT_EQ(find_key(*keys, "none"), nullptr);
  EXPECT_THAT(read_seal_keys(a + "," + a).status().message(), HasSubstr("twice"));
  EXPECT_THAT(read_seal_keys(",").status().message(), HasSubstr("expected 1 to 16"));
  EXPECT_FALSE(read_seal_keys(a + "," + b + "none").ok());
}

// For every family, on the CPU: a state that was saved and loaded continues with the same bits.
TEST(StateFile, ALoadedStateContinuesWithTheSameBits) {
  for (const Spec& spec : small_family_specs()) {
    const Bundle bundle = random_bundle(spec, 3);
    const ModelLimits limits = {.slots = 2, .rows = 2, .values = 64, .steps = 1};
    CpuModel here = make_cpu_model(bundle, {Isa::kPortable, 1}, limits);
    begin_sequence(*here.model, 0, 1);
    feed(*here.model, 0, {2, 3, 5, 7, 9}, 64, Want::kNothing);

    StateWriter writer(model_digest(spec, ""), here.model->layout(),
                       {.position = 6, .pending = 9, .bytes = state_bytes(*here.model, 0)},
                       nullptr);
    const std::string file = writer.next(1 << 20);
    CpuModel there = make_cpu_model(bundle, {Isa::kPortable, 1}, limits);
    const StateLayout& layout = there.model->layout();
    const std::string model = model_digest(spec, "");
    StateReader reader(
        [&](const StateHeader& header) -> Result<StateLayout> {
          if (Status s = check_state(header, {.spec = spec, .layout = layout, .model = model});
              !s.ok()) {
            return s;
          }
          return layout;
        },
        nullptr);
    ASSERT_TRUE(reader.add(std::as_bytes(std::span(file))).ok());
    const auto image = reader.finish();
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    there.model->write(1, 0, image->bytes);

    sample_from(*here.model, 0, 9, 5, 42, 10);
    sample_from(*there.model, 1, image->pending, image->position - 1, 42, 10);
    EXPECT_EQ(generate(*here.model, 0, 10), generate(*there.model, 1, 10));
  }
}

}  // namespace
}  // namespace runnel
