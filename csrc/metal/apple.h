#pragma once

// The parts of Foundation and Metal that the host uses. Includes Apple's headers if its SDK is
// installed; else declares the same methods, so that the library compiles and links on Linux and
// runs in tests against a stand-in (test/emulator/fake_metal). For Objective-C++ files only.

#if __has_include(<Metal/Metal.h>)

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

// The numbers that the declarations below repeat.
static_assert(MTLResourceStorageModeShared == 0 && MTLResourceStorageModePrivate == 32);
static_assert(MTLCommandBufferStatusCompleted == 4 && MTLCommandBufferStatusError == 5);
static_assert(MTLCommandBufferErrorOutOfMemory == 8);
static_assert(MTLLanguageVersion3_0 == 3 << 16);
static_assert(MTLGPUFamilyApple7 == 1007);
static_assert(sizeof(NSRange) == 16 && sizeof(MTLSize) == 24);

// True if the SDK declares residency sets, which came with macOS 15.
#define FORGE_HAS_RESIDENCY_SETS (__MAC_OS_X_VERSION_MAX_ALLOWED >= 150000)

#else

#define FORGE_HAS_RESIDENCY_SETS 1

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef bool BOOL;
#define YES true
#define NO false

typedef struct {
  NSUInteger location;
  NSUInteger length;
} NSRange;

typedef struct {
  NSUInteger width;
  NSUInteger height;
  NSUInteger depth;
} MTLSize;

enum : NSUInteger { MTLResourceStorageModeShared = 0, MTLResourceStorageModePrivate = 32 };
enum : NSUInteger { MTLCommandBufferStatusCompleted = 4, MTLCommandBufferStatusError = 5 };
enum : NSUInteger { MTLCommandBufferErrorOutOfMemory = 8 };
enum : NSUInteger { MTLLanguageVersion3_0 = 3 << 16 };
enum : NSInteger { MTLGPUFamilyApple7 = 1007 };

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
@end

__attribute__((objc_root_class))
@interface NSObject <NSObject> {
  Class isa;
}
+ (instancetype)alloc;
- (instancetype)init;
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char*)text;
- (const char*)UTF8String;
@end

@interface NSError : NSObject
- (NSInteger)code;
- (NSString*)localizedDescription;
@end

@interface MTLCompileOptions : NSObject
- (void)setFastMathEnabled:(BOOL)enabled;
- (void)setLanguageVersion:(NSUInteger)version;
@end

@protocol MTLAllocation <NSObject>
@end

@protocol MTLBuffer <MTLAllocation>
- (void*)contents;
- (NSUInteger)length;
@end

@protocol MTLFunction <NSObject>
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString*)name;
@end

@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)staticThreadgroupMemoryLength;
- (NSUInteger)threadExecutionWidth;
@end

@protocol MTLCommandEncoder <NSObject>
- (void)endEncoding;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroups threadsPerThreadgroup:(MTLSize)threads;
@end

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size;
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(unsigned char)value;
@end

@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (void)commit;
- (void)waitUntilCompleted;
- (NSUInteger)status;
- (NSError*)error;
- (double)GPUStartTime;
- (double)GPUEndTime;
@end

@interface MTLResidencySetDescriptor : NSObject
@end

@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (void)addResidencySet:(id<MTLResidencySet>)set;
@end

@protocol MTLDevice <NSObject>
- (NSString*)name;
- (unsigned long long)recommendedMaxWorkingSetSize;
- (NSUInteger)currentAllocatedSize;
- (NSUInteger)maxBufferLength;
- (NSUInteger)maxThreadgroupMemoryLength;
- (BOOL)supportsFamily:(NSInteger)family;
- (void)setShouldMaximizeConcurrentCompilation:(BOOL)maximize;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError**)error;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(NSUInteger)options
                              deallocator:(void (^)(void* bytes, NSUInteger length))deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error;
@end

extern "C" id<MTLDevice> MTLCreateSystemDefaultDevice(void);

#endif
