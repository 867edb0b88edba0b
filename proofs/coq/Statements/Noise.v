(** Appendix A: how noise would travel through Ghost, and what of the printed displays does not hold.

    Layers are counted as in Products: J k maps the gradient k layers below the last to the next one down. A
    law is on finitely many outcomes. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Gradients Variance Products.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The mean of a random matrix. *)
Definition average (R : numDomainType) (W : finType) (P : law R W) m n (X : W -> 'M[R]_(m, n)) :=
  \sum_w prob P w *: X w.

(* What a random matrix has beyond its mean. *)
Definition rest (R : numDomainType) (W : finType) (P : law R W) m n (X : W -> 'M[R]_(m, n)) w :=
  X w - average P X.

(* The last layer's similarity, beta-star. *)
Definition shared (R : ringType) d (z j : trace R d) L := dot (grad z L) (grad j L).

Section Parts.
Variables (R : ringType) (d : nat -> nat) (L : nat) (z j : trace R d) (c : nat -> R).
Definition remains l := beta z j l - c l * shared z j L.
(* X and Y. *)
(* Defines: signal-and-noise *)
Definition signal_part := (\sum_(1 <= l < L.+1) alpha z j l * c l) * shared z j L.
Definition noise_part := \sum_(1 <= l < L.+1) alpha z j l * remains l.
End Parts.

(** The last similarity is the shared one, by its definition. *)
(* Implements: shared-signal *)
Definition shared_signal := forall (R : ringType) d (z j : trace R d) L, beta z j L = shared z j L.

(** Ghost of one validation sample is signal plus noise, whatever the gains. *)
(* Implements: ghost-signal-noise, signal-and-noise *)
Definition ghost_of_one := forall (R : comRingType) d (z j : trace R d) L (c : nat -> R),
  influence_ghost L (fun _ : 'I_1 => z) j
    = - (\sum_(1 <= l < L.+1) alpha z j l * (c l * shared z j L + remains L z j c l)) /\
  influence_ghost L (fun _ : 'I_1 => z) j = - signal_part L z j c - noise_part L z j c.

(** LAI of one validation sample is the signal alone. *)
(* Implements: lai-signal *)
Definition lai_of_one := forall (R : comRingType) d (z j : trace R d) L,
  influence_lai L (fun _ : 'I_1 => z) j = - (\sum_(1 <= l < L.+1) alpha z j l) * beta z j L /\
  influence_lai L (fun _ : 'I_1 => z) j = - (\sum_(1 <= l < L.+1) alpha z j l) * shared z j L.

(** Around its mean an output gradient has a rest of mean zero, and what the rests share stays in the mean
    similarity. *)
(* Implements: output-fluctuation *)
Definition output_fluctuation := forall (R : realFieldType) (W : finType) (P : law R W) m
    (gz gj : W -> 'cV[R]_m),
  average P (rest P gz) = 0 /\
  mean P (fun w => dot (gz w) (gj w))
    = dot (average P gz) (average P gj) + mean P (fun w => dot (rest P gz w) (rest P gj w)).

(** Around its mean a Jacobian has a rest of mean zero; the mean of a product need not be the product of the
    means: two layers that flip sign together. *)
(* Implements: jacobian-split *)
Definition jacobian_split := forall R : realFieldType,
  (forall (W : finType) (P : law R W) m n (J : W -> 'M[R]_(m, n)), average P (rest P J) = 0) /\
  (exists (P : law R [finType of bool]) (J : bool -> forall k, 'M[R]_(1, 1)),
    operator (d := fun=> 1%N) (fun k => average P (J ^~ k)) 2 = 0 /\
    average P (fun w => operator (d := fun=> 1%N) (J w) 2) = 1%:M).

(* rho_{u -> v}, the factors from u up to v, v left out; 1 where there is none. *)
(* Defines: gain-products *)
Definition gains (R : ringType) (rho : nat -> R) u v := \prod_(u <= t < v) rho t.

(** Products of layer gains bound what a product of Jacobians enlarges; an empty product is 1, and they
    compose. *)
(* Implements: gain-products *)
Definition gain_products := forall (R : rcfType) d (B : forall k, 'M[R]_(d k.+1, d k)) (rho : nat -> R),
  (* $\rho_t = \norm{\bar J^{(t)}}_2$, which the text leaves open *) (forall t, gain_le (B t) (rho t)) ->
  [/\ forall u v, (u <= v)%N -> gain_le (between B v u) (gains rho u v),
      forall u, gains rho u u = 1
    & forall u t v, (u <= t <= v)%N -> gains rho u v = gains rho u t * gains rho t v].

(* The printed gain: the trace over the width of layer l, d. *)
Definition printed_gain (R : fieldType) n (d : nat) (M : 'M[R]_n) := \tr M / d%:R.

(** For equal widths the printed gain leaves the smallest rest, of trace zero; for an isometry from one output
    to two hidden units it is a half, and the gain is 1. *)
(* Implements: isotropic-gain *)
Definition isotropic_gain := forall R : rcfType,
  (forall dl dL (M : 'M[R]_dL.+1) c,
    (* $d_l = d_L$ *) dl = dL.+1 ->
    \tr (M - (printed_gain dl M)%:M) = 0 /\ norm (M - (printed_gain dl M)%:M) <= norm (M - c%:M)) /\
  (exists A : 'M[R]_(2, 1), A^T *m A = 1%:M /\ printed_gain 2 (A^T *m A) = 1 / 2%:R).

(** No bound below 1 - 1/n on the distance of the gains from 1 follows for n units from gradients that neither
    grow nor shrink: each Jacobian keeps one unit and gates the others off. For two units the gain is a
    half. *)
(* Refutes: unit-gain *)
Definition unit_gain := forall (R : realFieldType) n k,
  ~ (forall (J : nat -> 'M[R]_(n.+2, n.+2)) (g : nat -> 'cV[R]_n.+2),
      (* meaning *) (forall t, g t.+1 = J t *m g t) ->
      (* gradients neither explode nor vanish *)
      (forall t, dot (g t) (g t) = dot (g 0%N) (g 0%N) /\ g t != 0) ->
      let A := operator (d := fun=> n.+2) J k.+1 in
      `|1 - printed_gain n.+2 (A^T *m A)| < 1 - 1 / n.+2%:R).

(* Appendix A's model of one pair: random Jacobians and last gradients, and what the paper calls
   systematic. *)
Record model (R : realFieldType) (d : nat -> nat) (W : finType) := Model {
  chances : law R W;
  jacobian_z : W -> forall k, 'M[R]_(d k.+1, d k);
  jacobian_j : W -> forall k, 'M[R]_(d k.+1, d k);
  systematic : forall k, 'M[R]_(d k.+1, d k);
  last_z : W -> 'cV[R]_(d 0%N);
  last_j : W -> 'cV[R]_(d 0%N);
  star_z : 'cV[R]_(d 0%N);
  star_j : 'cV[R]_(d 0%N) }.

Section Model.
Variables (R : realFieldType) (d : nat -> nat) (W : finType) (M : model R d W) (L : nat).
(* The systematic Jacobians are the means of both samples'. *)
Definition means := forall k, average (chances M) (jacobian_z M ^~ k) = systematic M k /\
                              average (chances M) (jacobian_j M ^~ k) = systematic M k.
(* The fluctuations of the last gradients have mean zero. *)
Definition centred := average (chances M) (fun w => last_z M w - star_z M) = 0 /\
                      average (chances M) (fun w => last_j M w - star_j M) = 0.
(* Similarities and gains of L + 1 layers; l = L is the last one. *)
Definition similarity (l : 'I_L.+1) w :=
  dot (operator (jacobian_z M w) (L - l) *m last_z M w) (operator (jacobian_j M w) (L - l) *m last_j M w).
Definition model_gain (l : 'I_L.+1) :=
  \tr ((operator (systematic M) (L - l))^T *m operator (systematic M) (L - l)) / (d 0%N)%:R.
End Model.

(** The printed variance of Ghost leaves out the covariance of signal and noise: one layer below the last, one
    unit, one dropout mask for both samples. *)
(* Refutes: app-ghost-var *)
Definition variance_as_printed := forall R : realFieldType,
  ~ (forall d (W : finType) (M : model R d W) L (a : 'I_L.+1 -> R),
      (* $\bar J = \E J$ *) means M ->
      (* $\E \xi = 0$ *) centred M ->
      let P := chances M in let s := similarity M (L := L) in let c := model_gain M (L := L) in
      var P (Variance.ghost a s) = gain_sum a c ^+ 2 * var P (signal s)
        + \sum_l a l ^+ 2 * var P (remainder c s l)
        + 2%:R * (\sum_(l < L.+1) \sum_(k < L.+1 | (l < k)%N) a l * a k * cov P (remainder c s l)
          (remainder c s k))).

(** Ghost can be constant whatever the energy of its noise: both similarities of two layers oppose each
    other. *)
(* Refutes: noise-energy-floor *)
Definition energy_floor := forall R : realFieldType,
  ~ (forall d (W : finType) (M : model R d W) L (a : 'I_L.+1 -> R),
      (* $\bar J = \E J$ *) means M ->
      (* $\E \xi = 0$ *) centred M ->
      (* $c_l = 1$ for every layer *) (forall l, model_gain M (L := L) l = 1) ->
      let P := chances M in let s := similarity M (L := L) in let c := model_gain M (L := L) in
      \sum_l a l ^+ 2 * var P (remainder c s l) <= var P (Variance.ghost a s)).

(** The noise's variance need not outgrow a multiple of the depth, not even where all covariances are
    non-negative and all weights one: it stays below a constant where the layers below the first Jacobian
    halve both gradients. *)
(* Refutes: variance-depth-growth *)
Definition growth_with_depth := forall R : realFieldType,
  ~ (forall d (W : finType) (M : model R d W),
      (* $\bar J = \E J$ *) means M ->
      (* $\E \xi = 0$ *) centred M ->
      let P := chances M in
      let e L := remainder (model_gain M (L := L)) (similarity M (L := L)) in
      (* many covariances between layers are non-negative *) (forall L l k, 0 <= cov P (e L l) (e L k)) ->
      (* meaning *) (forall L (l : 'I_L.+1), (l < L)%N -> 0 < var P (e L l)) ->
      forall C, exists L, C * L.+1%:R
        < var P (noise (fun=> 1) (model_gain M (L := L)) (similarity M (L := L)))).

(* D is the derivative of the map f at X; on the reals this is Frechet's. *)
Definition derivative (R : realFieldType) n m (f : 'cV[R]_n -> 'cV[R]_m) X D :=
  forall e, 0 < e -> exists2 t, 0 < t & forall h, size1 h <= t ->
    size1 (f (X + h) - f X - D *m h) <= e * size1 h.

(* p is the derivative of the function phi at s. *)
Definition slope (R : realFieldType) (phi : R -> R) s p :=
  forall e, 0 < e -> exists2 t, 0 < t & forall h, `|h| <= t -> `|phi (s + h) - phi s - p * h| <= e * `|h|.

(** The gradient at layer l is the transposed derivative of s^(L) with respect to s^(l) times the last
    gradient. *)
(* Implements: separating-operator *)
Definition separating_operator := forall (R : realFieldType) dl dL (loss : 'cV[R]_dl -> R)
    (last : 'cV[R]_dL -> R)
    (f : 'cV[R]_dl -> 'cV[R]_dL) s D g,
  (* every path from layer $l$ to the loss passes through $s^{(L)}$ *) (forall x, loss x = last (f x)) ->
  (* meaning *) derivative f s D ->
  (* meaning *) gradient last (f s) g ->
  gradient loss s (D^T *m g).

(** One layer: the gradient below is J times the one above, J = Diag(phi'(s)) W^T. F is the loss as a function
    of the pre-activations W phi(s) + b above. *)
(* Implements: vjp-recursion *)
Definition vjp_recursion := forall (R : realFieldType) n m (F : 'cV[R]_m -> R) (below : 'cV[R]_n -> R)
    (phi : R -> R)
    (W : 'M[R]_(m, n)) b (s : 'cV[R]_n) (p : 'rV[R]_n) g,
  let above x := W *m map_mx phi x + b in
  (* meaning *) (forall i, slope phi (s i 0) (p 0 i)) ->
  (* meaning *) gradient F (above s) g ->
  (* a chain of layers *) (forall x, below x = F (above x)) ->
  gradient below s (diag_mx p *m W^T *m g).

(* The printed expansion: systematic Jacobians on both sides of the perturbed one. *)
Definition first_order (R : ringType) d (B D : forall k, 'M[R]_(d k.+1, d k)) k :=
  \sum_(t < k) between B k t.+1 *m D t *m operator B t.

(** The expansion is the part of first order: with D scaled by e, what is left is e^2 times the sum over pairs
    of perturbed layers. It is not small where D is as large as B: for two layers of one unit with B = D = 1
    the difference is 3 and the expansion 2. *)
(* Implements: app-DeltaA *)
Definition expansion := forall R : realFieldType,
  (forall d (B D : forall k, 'M[R]_(d k.+1, d k)) k e, let J := plus B (fun t => e *: D t) in
    operator J k - operator B k = e *: first_order B D k
      + e ^+ 2 *: \sum_(t < k) \sum_(s < t) between B k t.+1 *m D t *m between B t s.+1 *m D s *m operator J
        s) /\
  (let one := fun k : nat => 1%:M : 'M[R]_1 in
    operator (d := fun=> 1%N) (plus (d := fun=> 1%N) one one) 2 - operator (d := fun=> 1%N) one 2 = 3%:R%:M /\
    first_order (d := fun=> 1%N) one one 2 = 2%:R%:M).

(** The printed sum bounds the part of first order; no multiple of it bounds the whole perturbation. *)
(* Implements: app-DeltaA-bound *)
Definition expansion_bound := forall R : rcfType,
  (forall d (B D : forall k, 'M[R]_(d k.+1, d k)) (rho delta : nat -> R) k,
    (* $\rho_t = \norm{\bar J^{(t)}}_2$, which the text leaves open *) (forall t, gain_le (B t) (rho t)) ->
    (* meaning *) (forall t, gain_le (D t) (delta t)) ->
    gain_le (first_order B D k) (\sum_(t < k) gains rho t.+1 k * delta t * gains rho 0 t)) /\
  (forall C, exists (B D : nat -> 'M[R]_1) (rho delta : nat -> R),
    [/\ forall t, gain_le (B t) (rho t), forall t, gain_le (D t) (delta t)
      & ~ gain_le (operator (d := fun=> 1%N) (plus (d := fun=> 1%N) B D) 2 - operator (d := fun=> 1%N) B 2)
            (C * \sum_(t < 2) gains rho t.+1 2 * delta t * gains rho 0 t)]).

(** The four written terms are the whole remainder of the full gradients, so that further terms in xi add up
    to nothing; they are c times the rest of the shared similarity where that is replaced by the similarity of
    the means. *)
(* Implements: app-eps-explicit *)
Definition remainder_as_printed := forall (R : comRingType) m n (A dAz dAj : 'M[R]_(m, n)) c
    (sz sj xz xj : 'cV_n) further,
  let gz := sz + xz in let gj := sj + xj in
  let similarity := dot ((A + dAz) *m gz) ((A + dAj) *m gj) in
  let written := dot gz ((A^T *m A - c%:M) *m gj) + dot gz (A^T *m dAj *m gj) + dot gz (dAz^T *m A *m gj)
    + dot gz (dAz^T *m dAj *m gj) in
  (similarity - c * dot gz gj = written + further <-> further = 0) /\
  (similarity - c * dot sz sj = written + further <-> further = c * (dot sz xj + dot xz sj + dot xz xj)).
