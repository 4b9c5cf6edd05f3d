#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/png_file.h"
#include "cli/terminal_picture.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr ImageShape kDrawnShape{.height = 4, .width = 3, .channels = 1};
constexpr const char* kHide = "\x1b[?25l";
constexpr const char* kRestore = "\x1b[0m\x1b[?25h";

class DrawTest : public testing::Test {
 protected:
  DrawTest() {
    options_.server.address = server_.address();
    options_.model = "small";
    Console& console = captured_.console();
    console.utf8 = console.true_colour = true;
    console.canvas = [] { return TerminalSize{.columns = 3, .rows = 3}; };
  }
  int run() { return run_draw(options_, captured_.console()); }
  // The text of row `row` of the fake server's picture, which begins with `given`.
  static std::string row_of(int row, std::vector<uint8_t> given = {}) {
    Picture picture{.shape = kDrawnShape, .bytes = std::move(given)};
    for (int i = static_cast<int>(picture.bytes.size()); i < 12; ++i) {
      picture.bytes.push_back(static_cast<uint8_t>(fake_value(0, i, 256)));
    }
    return render_row(picture, 12, row, {.true_colour = true, .utf8 = true});
  }

  CapturedConsole captured_;
  FakeServer server_{{fake_image_model("small"), fake_symbol_model("text")}};
  TestFolder folder_;
  DrawOptions options_;
};

TEST_F(DrawTest, DrawsAPictureAndLeavesTheTerminalAsItWas) {
  options_.sampling.seed = 7;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(),
              AllOf(StartsWith(std::string(kHide) + "\n\n"),
                    HasSubstr(row_of(1) + "\r\n" + kRestore + "small, seed 7, in "),
                    EndsWith(" s, 1.000 bits per dimension\n")));
  EXPECT_EQ(captured_.err(), "");
  EXPECT_EQ(server_.last_request().sampling().seed(), 7);
}

TEST_F(DrawTest, ShowsTheGivenPartOfThePictureAtOnce) {
  const std::vector<uint8_t> given = random_bytes(12, 4);
  options_.prompt_image = folder_.write("given.png", *encode_png({kDrawnShape, given}));
  options_.rows = 2;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  const std::vector<uint8_t> upper(given.begin(), given.begin() + 6);
  EXPECT_THAT(captured_.out(),
              StartsWith(std::string(kHide) + "\n\n\x1b[2A\r" + row_of(0, upper) + "\r\n\x1b[1B"));
  EXPECT_THAT(captured_.out(), HasSubstr("\x1b[1A\r" + row_of(1, upper) + "\r\n" + kRestore));
}

TEST_F(DrawTest, TakesAtLeastAsLongAsAskedFor) {
  options_.seconds = 0.2;
  const TimePoint start = captured_.console().clock.now();
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_GE(captured_.console().clock.now() - start, std::chrono::milliseconds(200));
}

TEST_F(DrawTest, AnInterruptRestoresTheCursor) {
  server_.generate_instead = [](grpc::ServerContext* context,
                                grpc::ServerWriter<v1::GenerateResponse>* writer) {
    v1::GenerateResponse event;
    event.mutable_started();
    writer->Write(event);
    kill(getpid(), SIGINT);
    wait_until_cancelled(*context);
    return grpc::Status::CANCELLED;
  };
  EXPECT_EQ(run(), kExitInterrupted);
  EXPECT_THAT(captured_.out(), EndsWith(kRestore));
  EXPECT_EQ(captured_.err(), "runnel: interrupted\n");
}

TEST_F(DrawTest, AFailureRestoresTheCursor) {
  server_.generate_instead = [](grpc::ServerContext*, grpc::ServerWriter<v1::GenerateResponse>*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no state is free");
  };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.out(), EndsWith(kRestore));
  EXPECT_THAT(captured_.err(), HasSubstr("no state is free"));
}

TEST_F(DrawTest, NeedsATerminal) {
  captured_.console().canvas = nullptr;
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("needs a terminal that takes colours as standard output; "
                                         "runnel generate --out FILE.png"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(DrawTest, NeedsRoomForThePicture) {
  captured_.console().utf8 = false;
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(),
              HasSubstr("takes 6 columns and 5 rows, and the terminal has 3 and 3"));
  EXPECT_THAT(captured_.out(), Not(HasSubstr("\x1b")));
}

TEST_F(DrawTest, NeedsAModelOfImages) {
  options_.model = "text";
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("model 'text' has symbols, not pictures"));
}

}  // namespace
}  // namespace runnel
