/** The result of a check of the log of mailbox from disk, see `ron queue prove`. */

export interface ProveReportDto {
  /** Every record was read, and every ledger balances. */
  readonly ok: boolean;
  readonly segments: number;
  readonly records: number;
  readonly bytes: number;
  readonly topics: readonly ProvenTopicDto[];
  /** Messages with a damaged body: dead letters with the reason `damaged`. */
  readonly damaged: number;
  /** Why a ledger does not balance. */
  readonly problem?: string;
  /** Names the problem in `ron queue accept`. Hex. */
  readonly problem_sha256?: string;
}

/** `sent = acked + waiting + dead + gone` by the records. */
export interface ProvenTopicDto {
  readonly topic: string;
  readonly sent: number;
  readonly acked: number;
  /** Ready, delayed and leased. */
  readonly waiting: number;
  readonly dead: number;
  readonly gone: number;
}

/** The progress of the task `prove`; the report is present once it is done. */
export interface ProveProgressDto {
  readonly done_bytes: number;
  readonly total_bytes: number;
  readonly report?: ProveReportDto;
}
