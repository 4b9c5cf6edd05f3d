#include "kernels/cpu/choose_isa.h"

#include <gtest/gtest.h>

#include <set>

namespace runnel::cpu {
namespace {

IsaChoice choose(std::string_view vendor, const std::set<Isa>& has, bool tiles_refused = false) {
  const auto available = [&](Isa isa) { return has.contains(isa); };
  return choose_isa(vendor, available, tiles_refused);
}

const std::set<Isa> kAll = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};
const std::set<Isa> kNoTiles = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

TEST(ChooseIsa, TilesComeFirst) { EXPECT_EQ(choose("GenuineIntel", kAll).isa, Isa::kAmx); }

TEST(ChooseIsa, TheInstructionForBf16IsTakenWhereItIsFast) {
  EXPECT_EQ(choose("AuthenticAMD", kNoTiles).isa, Isa::kAvx512Bf16);
  EXPECT_EQ(choose("GenuineIntel", kNoTiles).isa, Isa::kAvx512);
  EXPECT_EQ(choose("somebody else", kNoTiles).isa, Isa::kAvx512);
}

TEST(ChooseIsa, OtherwiseTheWidestIsTaken) {
  EXPECT_EQ(choose("AuthenticAMD", {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}).isa, Isa::kAvx512);
  EXPECT_EQ(choose("AuthenticAMD", {Isa::kPortable, Isa::kAvx2}).isa, Isa::kAvx2);
  EXPECT_EQ(choose("GenuineIntel", {Isa::kPortable}).why,
            "the processor has neither AVX2 nor AVX-512");
  EXPECT_EQ(choose("", {Isa::kPortable}).isa, Isa::kPortable);
  EXPECT_EQ(choose("", {Isa::kPortable}).why, "there are no other kernels for this architecture");
}

TEST(ChooseIsa, SaysWhy) {
  for (const auto& has : {kAll, kNoTiles, std::set<Isa>{Isa::kPortable}}) {
    EXPECT_FALSE(choose("GenuineIntel", has).why.empty());
  }
  EXPECT_NE(choose("GenuineIntel", kNoTiles, true).why.find("the kernel refuses them"),
            std::string::npos);
}

// The instruction set that a backend uses if none is requested.
TEST(ChooseIsa, TheBackendUsesTheChosenInstructionSet) {
  const IsaChoice choice = best_isa();
  EXPECT_TRUE(isa_available(choice.isa));
  const auto found = make_cpu_backend({.isa = {}, .threads = 1});
  const auto asked = make_cpu_backend({.isa = choice.isa, .threads = 1});
  ASSERT_TRUE(found.ok() && asked.ok());
  EXPECT_EQ((*found)->numerics(Precision::kBf16), (*asked)->numerics(Precision::kBf16));
  EXPECT_EQ((*found)->preferred(), (*asked)->preferred());
}

}  // namespace
}  // namespace runnel::cpu
