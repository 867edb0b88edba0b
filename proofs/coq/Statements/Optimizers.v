(** Appendix E: scores along Adam's step. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Gradients.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Each entry divided by the root of D's, and by its fourth root. *)
Definition scaled (R : rcfType) p q (D G : 'M[R]_(p, q)) : 'M_(p, q) :=
  \matrix_(i, k) (G i k / Num.sqrt (D i k)).
Definition quarter (R : rcfType) p q (D G : 'M[R]_(p, q)) : 'M_(p, q) :=
  \matrix_(i, k) (G i k / Num.sqrt (Num.sqrt (D i k))).

(* The running mean D after a batch; the columns of G are the batch's gradients, by sample and position. *)
(* Defines: second-moment *)
Definition running_square (R : fieldType) p n gamma (D : 'cV[R]_p) (G : 'M_(p, n)) :=
  \col_i (gamma * D i 0 + (1 - gamma) * ((\sum_t G i t ^+ 2) / n%:R)).

(** Unrolled, the running mean weighs each batch, and the weights add up to one. A decay strictly between 0
    and 1 makes all weights positive, and so the mean a weighted average of what it started from and of the
    batches. *)
(* Implements: second-moment *)
Definition running_unrolled := forall (R : realFieldType) p n gamma (D : nat -> 'cV[R]_p)
    (G : nat -> 'M_(p, n)),
  (* meaning *) (forall k, D k.+1 = running_square gamma (D k) (G k)) ->
  let weight k (i : 'I_k) := (1 - gamma) * gamma ^+ (k - i.+1) in
  (forall k, D k = gamma ^+ k *: D 0%N + \sum_(i < k) weight k i *: running_square 0 0 (G i) /\
             gamma ^+ k + \sum_(i < k) weight k i = 1) /\
  ((* meaning *) 0 < gamma < 1 -> forall k, 0 < gamma ^+ k /\ forall i, 0 < weight k i).

(** The score along Adam's direction: D^(-1/2) on one side, or D^(-1/4) on both. *)
(* Implements: adam-direction *)
Definition adam_direction := forall (R : rcfType) p (loss : 'cV[R]_p -> R) theta (D gV gj : 'cV_p),
  (* $D > 0$ entrywise *) (forall i, 0 < D i 0) ->
  (* meaning *) gradient loss theta gV ->
  derivative (fun eta => loss (theta - eta *: scaled D gj)) 0 (- dot gV (scaled D gj)) /\
  dot (quarter D gV) (quarter D gj) = dot gV (scaled D gj).

(** D^(-1/2) on both sides can have the wrong sign: the loss falls along Adam's direction, and the printed
    similarity is negative. D is what a running mean of the squares of (1, 4) becomes, at any decay. *)
(* Refutes: optimizer-preconditioning *)
Definition both_sides_reverse := forall (R : rcfType) (gamma : R),
  exists (D : 'cV[R]_2) (G : 'M[R]_(2, 1)) (gz gj : 'cV[R]_2),
  [/\ (* $D$ is a running mean of squared gradients of the last layer *)
      D = running_square gamma (running_square 0 0 G) G, forall i, 0 < D i 0,
      forall loss theta, gradient loss theta gz ->
        derivative (fun eta => loss (theta - eta *: scaled D gj)) 0 (- 1)
    & dot (scaled D gz) (scaled D gj) = - (1 / 2%:R)].

(** LAI along Adam's direction on the virtual readouts, of which D and c l are the factors of the second
    moments. *)
(* Implements: adam-readouts *)
Definition adam_readouts := forall (R : rcfType) d n L (V : 'I_n -> trace R d) (j : trace R d)
    (sz : 'I_n -> 'cV_(d L)) sj (fz : 'I_n -> 'cV_(d L) -> R) fj
    (v : forall l, 'M_(d L, d l.-1)) (D : 'cV_(d L)) (c : forall l, 'cV_(d l.-1))
    (Gz : 'I_n -> forall l, 'M_(d L, d l.-1)) (Gj : forall l, 'M_(d L, d l.-1)),
  (* meaning *) (forall z, gradient (fz z) (sz z) (grad (V z) L)) ->
  (* meaning *) gradient fj sj (grad j L) ->
  (* meaning *) ((forall i, 0 < D i 0) /\ forall l i, 0 < c l i 0) ->
  (* the second moment of readout $l$ is $d\, c_l^\top$, as it is where squared inputs and squared output
     gradients are uncorrelated *)
  (forall l, v l = D *m (c l)^T) ->
  (* meaning *)
  (forall l, (0 < l <= L)%N -> (forall z, gradient (fun U => fz z (sz z + U *m act (V z) l.-1)) 0 (Gz z l))
                               /\ gradient (fun U => fj (sj + U *m act j l.-1)) 0 (Gj l)) ->
  \sum_z \sum_(1 <= l < L.+1) dot (Gz z l) (scaled (v l) (Gj l))
  = \sum_z (\sum_(1 <= l < L.+1) dot (act (V z) l.-1) (scaled (c l) (act j l.-1)))
           * dot (grad (V z) L) (scaled D (grad j L)).

(* Adam's corrected moments at step t for the batch gradient g, and its step. *)
Definition first (R : fieldType) p b t (m g : 'cV[R]_p) : 'cV_p :=
  \col_i ((b * m i 0 + (1 - b) * g i 0) / (1 - b ^+ t)).
Definition second (R : fieldType) p b t (v g : 'cV[R]_p) : 'cV_p :=
  \col_i ((b * v i 0 + (1 - b) * g i 0 ^+ 2) / (1 - b ^+ t)).
Definition adam_step (R : rcfType) p eta eps (theta m v : 'cV[R]_p) : 'cV_p :=
  \col_i (theta i 0 - eta * (m i 0 / (Num.sqrt (v i 0) + eps))).
(* Q of the page, from the corrected moments and the batch gradient, and its product with a gradient. *)
Definition Q (R : rcfType) p b1 b2 t eps (m v g : 'cV[R]_p) : 'cV_p :=
  \col_i ((1 - b1) / ((1 - b1 ^+ t) * (Num.sqrt (v i 0) + eps))
          - m i 0 * (1 - b2) * g i 0 / ((1 - b2 ^+ t) * Num.sqrt (v i 0) * (Num.sqrt (v i 0) + eps) ^+ 2)).
Definition times (R : ringType) p (x y : 'cV[R]_p) : 'cV_p := \col_i (x i 0 * y i 0).
(* The batch gradient where sample j has weight x and the others theirs; decay that is added to the gradient
   is in c. *)
Definition batch (R : ringType) n p (c : 'cV[R]_p) (w : 'I_n -> R) (g : 'I_n -> 'cV_p) j x :=
  c + \sum_k (if k == j then x else w k) *: g k.

(** The derivative of the validation loss after one Adam step in a sample's weight; clipping is inactive, as
    below the limit; `adam_clipped` has it active. *)
(* Implements: adam-derivative *)
Definition adam_derivative := forall (R : rcfType) n p (loss : 'cV[R]_p -> R) theta c (w : 'I_n -> R)
    (g : 'I_n -> 'cV_p) j
    m0 v0 (b1 b2 : R) t (eta eps : R) gV,
  let m (x : R) := first b1 t m0 (batch c w g j x) in
  let v (x : R) := second b2 t v0 (batch c w g j x) in
  (* $\hat v > 0$ entrywise *) (forall i, 0 < v (w j) i 0) ->
  (* $0 < \beta_1, \beta_2 < 1$ *) (0 < b1 < 1 /\ 0 < b2 < 1) ->
  (* meaning *) (0 < t)%N ->
  (* meaning *) 0 <= eps ->
  (* meaning *) gradient loss (adam_step eta eps theta (m (w j)) (v (w j))) gV ->
  derivative (fun x : R => loss (adam_step eta eps theta (m x) (v x))) (w j)
    (- eta * dot (times (Q b1 b2 t eps (m (w j)) (v (w j)) (batch c w g j (w j))) gV) (g j)).

(* A gradient that is clipped at the norm `limit`, with a small number beside its norm as frameworks have it;
   and what clipping puts before another vector. *)
Definition clip (R : rcfType) p (limit pad : R) (g : 'cV[R]_p) := Num.min 1 (limit / (norm g + pad)) *: g.
Definition clip_slope (R : rcfType) p (limit pad : R) (g : 'cV[R]_p) : 'M_p :=
  (limit / (norm g + pad)) *: (1%:M - (norm g * (norm g + pad))^-1 *: (g *m g^T)).

(** The same where clipping is active: Q is that at the clipped gradient. *)
(* Implements: adam-derivative *)
Definition adam_clipped := forall (R : rcfType) n p (loss : 'cV[R]_p -> R) theta c (w : 'I_n -> R)
    (g : 'I_n -> 'cV_p) j m0 v0 (b1 b2 : R) t (eta eps limit pad : R) gV,
  let whole (x : R) := batch c w g j x in
  let clipped x := clip limit pad (whole x) in
  let m x := first b1 t m0 (clipped x) in
  let v x := second b2 t v0 (clipped x) in
  (* $\hat v > 0$ entrywise *) (forall i, 0 < v (w j) i 0) ->
  (* $0 < \beta_1, \beta_2 < 1$ *) (0 < b1 < 1 /\ 0 < b2 < 1) ->
  (* meaning *) (0 < t)%N ->
  (* meaning *) 0 <= eps ->
  (* meaning *) 0 <= pad ->
  (* meaning *) 0 < norm (whole (w j)) ->
  (* meaning *) 0 < limit < norm (whole (w j)) + pad ->
  (* meaning *) gradient loss (adam_step eta eps theta (m (w j)) (v (w j))) gV ->
  derivative (fun x => loss (adam_step eta eps theta (m x) (v x))) (w j)
    (- eta * dot (clip_slope limit pad (whole (w j)) *m
                  times (Q b1 b2 t eps (m (w j)) (v (w j)) (clipped (w j))) gV) (g j)).

(* A vector from both moments, the batch gradient and the validation gradient. *)
Definition of_batch (R : ringType) p := 'cV[R]_p -> 'cV[R]_p -> 'cV[R]_p -> 'cV[R]_p -> 'cV[R]_p.

(** No moments of single samples are needed: one function of the batch's moments, its gradient and the
    validation gradient gives the derivatives in all weights, as inner products with the samples'
    gradients. *)
(* Refutes: adam-needs-moments *)
Definition batch_moments_suffice := forall (R : rcfType) p (b1 b2 : R) t (eta eps : R),
  (* meaning *) (0 < b1 < 1 /\ 0 < b2 < 1) ->
  (* meaning *) (0 < t)%N ->
  (* meaning *) 0 <= eps ->
  exists U : of_batch R p,
  forall n (loss : 'cV[R]_p -> R) theta c (w : 'I_n -> R) (g : 'I_n -> 'cV_p) m0 v0 gV,
  let total := c + \sum_k w k *: g k in
  let m := first b1 t m0 total in
  let v := second b2 t v0 total in
  (* meaning *) (forall i, 0 < v i 0) ->
  (* meaning *) gradient loss (adam_step eta eps theta m v) gV ->
  forall j, derivative (fun x : R => loss (adam_step eta eps theta (first b1 t m0 (batch c w g j x))
                                                 (second b2 t v0 (batch c w g j x)))) (w j)
              (dot (U m v total gV) (g j)).
