/** A part with a long-lived task of its own. */
export interface RunningPart {
  /** Resolves once `stopping` has aborted and the work in progress has ended. */
  run(stopping: AbortSignal): Promise<void>;
}
