/** The progress of a transfer. */
export interface Progress {
  readonly done_bytes: number;
  /** Undefined if unknown. A size that the server states is proven only at the end of the transfer. */
  readonly total_bytes: number | undefined;
}

export type OnProgress = (progress: Progress) => void;
