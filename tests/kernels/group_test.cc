// Tests of groups of calls: which call each block belongs to, and the bytes of a group in a script.
#include "kernels/cuda/group.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/script.h"
#include "tests/kernels/host_device.h"

namespace runnel::cuda {
namespace {

struct Call {
  int number;
};

TEST(Group, EachBlockBelongsToOneCall) {
  for (int calls = 1; calls <= Group<Call>::kMost; ++calls) {
    Group<Call> group;
    std::vector<int> expected;
    for (int call = 0; call < calls; ++call) {
      const int blocks = call * 7 % 5;  // some calls have no blocks
      group.add({call}, blocks);
      expected.insert(expected.end(), blocks, call);
    }
    ASSERT_EQ(group.blocks, std::ssize(expected));
    for (int block = 0; block < std::ssize(expected); ++block) {
      const int at = group.call_of(block);
      EXPECT_EQ(group.one[at].number, expected[block]);
      EXPECT_TRUE(block == group.first[at] || group.call_of(block - 1) == at);
    }
  }
}

// Notes the call and the index of each block.
struct Noting {
  struct Args {
    std::vector<std::string>* notes;
    int number;
  };
  static constexpr int kThreads = kWarp;
  static constexpr int kResident = 1;
  static constexpr Launch launch(const Args& /*args*/) { return {.blocks = 2, .shared_bytes = 4}; }
  template <typename Block>
  static void ahead(Block& block, const Args& args) {
    note("ahead ", block, args);
  }
  template <typename Block>
  static void run(Block& block, const Args& args) {
    note("", block, args);
  }
  template <typename Block>
  static void note(const std::string& what, Block& block, const Args& args) {
    args.notes->push_back(what + std::to_string(args.number) + "." + std::to_string(block.index()));
  }
};

TEST(Group, AScriptKeepsItsCallsAndRunsThem) {
  const auto group = [](int calls, std::vector<std::string>* notes) {
    Grouped<Noting>::Args made;
    for (int call = 0; call < calls; ++call) made.add({notes, call}, 2);
    return made;
  };
  const auto script = [&](int calls, std::vector<std::string>* notes) {
    Script<HostDevice> made;
    const auto args = group(calls, notes);
    made.add<Grouped<Noting>>(Grouped<Noting>::launch(args), args);
    return made;
  };
  std::vector<std::string> notes;
  EXPECT_EQ(script(3, &notes).bytes().size() - script(2, &notes).bytes().size(), 16U);
  EXPECT_EQ(script(3, &notes).bytes(), script(3, &notes).bytes());
  HostDevice device(ThreadOrder::kForward);
  script(2, &notes).replay(device);
  const std::vector<std::string> expected = {"ahead 0.0", "0.0", "ahead 0.1", "0.1",
                                             "ahead 1.0", "1.0", "ahead 1.1", "1.1"};
  EXPECT_EQ(notes, expected);
}

}  // namespace
}  // namespace runnel::cuda
