#include "cli/help.h"

#include <gmock/gmock.h>

#include "cli/completion.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "cli/manual.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An app with one command, and one that has commands of its own.
class HelpTest : public testing::Test {
 protected:
  HelpTest() {
    app_.require_subcommand(1);
    CLI::App* draw = app_.add_subcommand("draw", "Draws a picture's \\ lines: [all]");
    draw->add_option("--size,-s", size_, "Its size")->capture_default_str();
    draw->add_flag("--grey", grey_, "Without colour; that's all");
    draw->footer(".dots\n'quotes");
    CLI::App* shelf = app_.add_subcommand("shelf", "What is kept");
    shelf->require_subcommand(1);
    shelf->add_subcommand("list", "All of it")->add_option("what", what_, "Which ones");
    add_help_commands(app_, exit_code_, "1.2.3");
  }
  // What is printed on standard output.
  std::string parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    testing::internal::CaptureStdout();
    app_.parse(words);
    std::cout.flush();
    return testing::internal::GetCapturedStdout();
  }

  CLI::App app_{"Draws", "runnel"};
  int size_ = 7, exit_code_ = -1;
  bool grey_ = false;
  std::string what_;
};

TEST_F(HelpTest, HelpIsThatOfTheCommand) {
  EXPECT_THAT(parse({"help"}), AllOf(HasSubstr("draw"), HasSubstr("shelf")));
  EXPECT_THAT(parse({"help", "draw"}), AllOf(HasSubstr("runnel draw"), HasSubstr("--size")));
  EXPECT_THAT(parse({"help", "shelf", "list"}), HasSubstr("Which ones"));
  EXPECT_EQ(exit_code_, kExitOk);
  EXPECT_EQ(parse({"help", "shelve"}), "");
  EXPECT_EQ(exit_code_, kExitUsage);
}

TEST_F(HelpTest, TheManualPageHasEverythingAsPlainText) {
  const std::string page = man_page(app_, "1.2.3");
  EXPECT_EQ(parse({"man"}), page);
  EXPECT_THAT(page, AllOf(HasSubstr(".SS runnel draw\nDraws a picture's \\e lines"),
                          HasSubstr("\\fB\\-s, \\-\\-size\\fR \\fIINT\\fR\nIts size (default: 7)"),
                          HasSubstr("\\fB\\-\\-grey\\fR\n"), HasSubstr("\\&.dots\n\\&'quotes"),
                          HasSubstr(".SS runnel shelf list"), HasSubstr("1.2.3")));
}

TEST_F(HelpTest, CompletionHasEveryCommandAndFlag) {
  EXPECT_EQ(parse({"completion", "bash"}), bash_completion(app_));
  EXPECT_EQ(parse({"completion", "zsh"}), zsh_completion(app_));
  EXPECT_THROW(parse({"completion", "fish"}), CLI::ValidationError);
  EXPECT_THAT(bash_completion(app_),
              AllOf(HasSubstr("'runnel draw') words='--help -h --size -s --grey ' ;;"),
                    HasSubstr("'runnel shelf list') path=$next"),
                    HasSubstr("complete -o default -F _runnel runnel\n")));
  EXPECT_THAT(zsh_completion(app_),
              AllOf(HasSubstr("'draw:Draws a picture'\\''s \\\\ lines\\: \\[all\\]'"),
                    HasSubstr("'*--size[Its size]:value:_files'"),
                    HasSubstr("'*--grey[Without colour; that'\\''s all]'"),
                    HasSubstr("_runnel_shelf_list()")));
}

}  // namespace
}  // namespace runnel
