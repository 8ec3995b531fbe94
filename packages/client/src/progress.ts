/** How far a transfer is. */
export interface Progress {
  readonly done_bytes: number;
  /** As far as it is known; what a server states is proven only when the transfer has ended. */
  readonly total_bytes: number | undefined;
}

export type OnProgress = (progress: Progress) => void;
