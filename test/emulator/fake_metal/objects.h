#pragma once

// The objects of the stand-in: counted as Objective-C counts them, and watched. A message to an
// object that was released, and objects that are left when the last device goes, end the process.

#include "../../../csrc/metal/apple.h"
#include "options.h"

@interface NSObject (Fake)
+ (Class)class;
- (instancetype)autorelease;
// Called before the object's memory is given up; overridden by what owns something.
- (void)dealloc;
@end

@interface FakeError : NSError {
  NSInteger code_;
  const char* text_;
}
+ (FakeError*)errorWithCode:(NSInteger)code text:(const char*)text;
@end

namespace fake_metal {

// Aborts, naming them, when objects of the stand-in's own classes are alive beside the last device.
void require_no_objects_beside(NSObject* device);

}  // namespace fake_metal
