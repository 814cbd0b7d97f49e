import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { tar, type TarEntry } from "../../../ffi/build/tar.ts";
import { toolAvailable } from "./fake_tree.ts";

async function archive(entries: readonly TarEntry[]): Promise<Uint8Array<ArrayBuffer>> {
  const parts = await Array.fromAsync(tar(entries));
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

const text = (content: string) => new TextEncoder().encode(content);
const longFolder = `${"folder-".repeat(12)}/${"of-many-".repeat(8)}`;

Deno.test({
  name: "tar: the system's tar reads its archives",
  ignore: !await toolAvailable("tar"),
  async fn() {
    const folder = Deno.makeTempDirSync({ prefix: "forge-tar-" });
    try {
      const bytes = await archive([
        { path: "top/a.txt", content: text("hello"), executable: false },
        { path: "top/block", content: text("x".repeat(512)), executable: false },
        { path: "top/empty", content: text(""), executable: false },
        { path: "top/run", content: text("#!/bin/sh\n"), executable: true },
        { path: "top/link", content: { link: "a.txt" }, executable: false },
        { path: `${longFolder}/names.txt`, content: text("long"), executable: false },
      ]);
      Deno.writeFileSync(join(folder, "x.tar"), bytes);
      const { success, stderr } = await new Deno.Command("tar", {
        args: ["-xf", "x.tar"],
        cwd: folder,
      }).output();
      assertEquals(new TextDecoder().decode(stderr), "");
      assertEquals(success, true);
      const read = (path: string) => Deno.readTextFileSync(join(folder, path));
      assertEquals(read("top/a.txt"), "hello");
      assertEquals(read("top/block").length, 512);
      assertEquals(read("top/empty"), "");
      assertEquals(read("top/link"), "hello");
      assertEquals(read(`${longFolder}/names.txt`), "long");
      assertEquals((Deno.statSync(join(folder, "top/run")).mode ?? 0) & 0o111, 0o111);
      assertEquals((Deno.statSync(join(folder, "top/a.txt")).mode ?? 0) & 0o111, 0);
      assertEquals(Deno.readLinkSync(join(folder, "top/link")), "a.txt");
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  },
});

Deno.test("tar: the size is whole blocks, and the end is two empty ones", async () => {
  const bytes = await archive([{ path: "a", content: text("hello"), executable: false }]);
  assertEquals(bytes.length, 512 + 512 + 1024);
  assertEquals(bytes.subarray(1024).some((byte) => byte !== 0), false);
});

Deno.test("tar: a path is split into a prefix of 155 bytes and a name of 100 at most", async () => {
  const put = async (path: string) => {
    const entry = { path, content: text(""), executable: false };
    const bytes = await archive([entry]);
    const field = (offset: number, length: number) =>
      new TextDecoder().decode(bytes.subarray(offset, offset + length)).replace(/\0.*$/s, "");
    return [field(345, 155), field(0, 100), field(100, 8)];
  };
  const [a, n, umlauts] = ["a".repeat(155), "n".repeat(100), "ä".repeat(50)];
  assertEquals(await put(n), ["", n, "0000644"]);
  assertEquals(await put(`b/${n.slice(2)}`), ["", `b/${n.slice(2)}`, "0000644"]);
  assertEquals(await put(`${a}/${n}`), [a, n, "0000644"]);
  assertEquals(await put(`b/${umlauts}`), ["b", umlauts, "0000644"]);
  for (const path of [`a${a}/${n}`, `${a}/n${n}`, `ä${umlauts}`]) {
    await assertRejects(() => put(path), RangeError, "too long");
  }
});

Deno.test("tar: a path or link that is too long is rejected", async () => {
  const name = "n".repeat(101);
  await assertRejects(
    () => archive([{ path: `a/${name}`, content: text(""), executable: false }]),
    RangeError,
    "too long",
  );
  await assertRejects(
    () => archive([{ path: "a", content: { link: name }, executable: false }]),
    RangeError,
    "too long",
  );
});
