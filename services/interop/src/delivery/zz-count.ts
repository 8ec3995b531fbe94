import { explore } from '@ron/explorer';
import { DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import { appliedOnce } from './applied-once.model.ts';
import { Sender } from './sender.ts';
for (const [w, f, p] of [[1, 1, 0], [1, 1, 1], [1,2,0], [1, 2, 1], [2, 1, 0], [1,1,2]] as const) {
  const t = performance.now();
  const r = await explore(appliedOnce({ Sender, DeliveryRecorder }, { webhooks: w, faults: f }), { lags: 0, delayed: false, turn_max: 1, preemptions: p, schedules_max: 20000 });
  console.log(w, f, p, r.schedules, r.holds, r.depth_max, Math.round(performance.now() - t), r.failure?.kind, (r.failure?.error as Error)?.message, r.failure?.trace);
}
