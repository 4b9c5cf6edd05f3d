#include "base/certificate.h"

#include <gmock/gmock.h>

#include "tests/base/certificates.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using std::chrono::hours;
using std::chrono::system_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

class CertificateTest : public testing::Test {
 protected:
  CertificateTest() : pair_(authority_.issue("runnel")) {
    write("cert.pem", pair_.certificate);
    write("key.pem", pair_.key);
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  Result<Identity> read(hours later = hours(0)) const {
    return read_identity(path("cert.pem"), path("key.pem"), system_clock::now() + later);
  }
  std::string error(hours later = hours(0)) const {
    const Result<Identity> identity = read(later);
    EXPECT_EQ(identity.status().code(), Code::kInvalidArgument);
    return identity.status().message();
  }

  const TestFolder folder_;
  const TestAuthority authority_{"an authority"};
  const PemPair pair_;
};

TEST_F(CertificateTest, IsReadWithItsKeySubjectAndEnd) {
  const Result<Identity> identity = read();
  ASSERT_TRUE(identity.ok()) << identity.status().message();
  EXPECT_EQ(identity->certificate, pair_.certificate);
  EXPECT_EQ(identity->key, pair_.key);
  EXPECT_EQ(identity->subject, "CN=runnel");
  EXPECT_THAT(identity->expires, MatchesRegex("20..-..-..T..:..:..Z"));
}

TEST_F(CertificateTest, ComesFirstInItsChain) {
  write("cert.pem", pair_.certificate + authority_.pem());
  EXPECT_TRUE(read().ok());
  write("cert.pem", authority_.pem() + pair_.certificate);
  EXPECT_THAT(error(), HasSubstr("whose own certificate comes first"));
}

TEST_F(CertificateTest, RefusesACertificateOfAnotherKeyAndNamesBothFiles) {
  write("key.pem", authority_.issue("other").key);
  EXPECT_THAT(error(), AllOf(HasSubstr(path("key.pem") + " is not the key of " + path("cert.pem")),
                             HasSubstr("made together")));
}

TEST_F(CertificateTest, IsRefusedBeforeAndAfterItsTime) {
  EXPECT_THAT(error(hours(24)), HasSubstr(path("cert.pem") + " expired at 20"));
  EXPECT_THAT(error(hours(-24)), HasSubstr(path("cert.pem") + " is not valid before 20"));
}

TEST_F(CertificateTest, RefusesFilesWithoutACertificateOrAKey) {
  write("cert.pem", pair_.key);
  EXPECT_THAT(error(), HasSubstr(path("cert.pem") + " has no certificate; expected PEM"));
  write("cert.pem", "");
  EXPECT_THAT(error(), HasSubstr("has no certificate"));
  write("cert.pem", pair_.certificate.substr(0, 200));
  EXPECT_THAT(error(), HasSubstr("certificate 1 cannot be read"));
  write("cert.pem", pair_.certificate);
  write("key.pem", pair_.certificate);
  EXPECT_THAT(error(), HasSubstr(path("key.pem") + " has no private key; expected PEM"));
  write("key.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
  EXPECT_THAT(error(), HasSubstr(path("key.pem") + " is encrypted"));
}

TEST_F(CertificateTest, MissingOrTooLongFilesAreNamed) {
  EXPECT_EQ(read_identity(path("none"), path("key.pem"), system_clock::now()).status().code(),
            Code::kNotFound);
  write("key.pem", std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(error(), HasSubstr("key.pem"));
}

TEST_F(CertificateTest, ReadsOneOrMoreAuthorities) {
  write("ca.pem", authority_.pem() + TestAuthority("another").pem());
  const Result<std::string> both = read_authorities(path("ca.pem"));
  ASSERT_TRUE(both.ok()) << both.status().message();
  write("ca.pem", "nothing");
  EXPECT_THAT(read_authorities(path("ca.pem")).status().message(),
              HasSubstr(path("ca.pem") + " has no certificate"));
}

}  // namespace
}  // namespace runnel
