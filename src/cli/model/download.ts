import { formatBytes, formatClock, printable } from "../output/format.ts";

/** Time before the speed of a download is shown. */
const SPEED_DELAY_MS = 1000;

/** Describes the progress, speed and remaining time of a download, file by file. */
export class DownloadMeter {
  #file = "";
  #start = 0;
  /** Bytes of the file that an earlier download left. */
  #bytesAtStart = 0;

  /**
   * Returns the line of progress.
   *
   * @param bytes downloaded bytes of the file
   * @param total size of the file, if known
   * @param now time in milliseconds
   */
  line(
    file: string,
    bytes: number,
    total: number | undefined,
    now: number = performance.now(),
  ): string {
    if (file !== this.#file) {
      this.#file = file;
      this.#start = now;
      this.#bytesAtStart = bytes;
    }
    const extent = total === undefined || total === 0
      ? formatBytes(bytes)
      : `${Math.floor(bytes / total * 100)}% of ${formatBytes(total)}`;
    const parts = [`${printable(file)}: ${extent}`];
    const milliseconds = now - this.#start;
    const rate = (bytes - this.#bytesAtStart) / milliseconds * 1000;
    if (milliseconds >= SPEED_DELAY_MS && rate > 0) {
      parts.push(`${formatBytes(Math.round(rate))}/s`);
      if (total !== undefined) parts.push(`${formatClock((total - bytes) / rate)} left`);
    }
    return parts.join(", ");
  }
}
