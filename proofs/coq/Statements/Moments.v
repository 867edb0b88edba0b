(** Means and variances of similarities over random layers: Jacobians with independent noise, gated layers
    whose columns point in no preferred direction, and random weights.

    A law is on finitely many outcomes. Where the page's law is a uniform or a normal one, a statement asks
    for the moments of it that are needed, which finite laws have too. What the page has fixed or given is the
    same in all outcomes here: the law is the one given it. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Laws Products Noise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The X i are independent: the mean of any product of functions of them is the product of the means. *)
Definition independent (R : numDomainType) (W : finType) (P : law R W) (I : finType) (T : I -> eqType)
    (X : forall i, W -> T i) :=
  forall f : forall i, T i -> R, mean P (fun w => \prod_i f i (X i w))
    = \prod_i mean P (fun w => f i (X i w)).

(* The covariance matrix of a random vector. *)
Definition covariance (R : numDomainType) (W : finType) (P : law R W) n (X : W -> 'cV[R]_n) :=
  average P (fun w => rest P X w *m (rest P X w)^T).

Section Noisy.
Variables (R : numDomainType) (W : finType) (P : law R W) (d : nat -> nat).
Implicit Types (B : forall k, 'M[R]_(d k.+1, d k)) (D Dz Dj : W -> forall k, 'M[R]_(d k.+1, d k)).
(* The last gradient g, k layers further down: Jacobians are B plus the noise D. Layers are counted as in
   Products. *)
Definition lowered B D k (g : 'cV_(d 0%N)) w := operator (plus B (D w)) k *m g.
(* The noise of the k layers below the last, of sample z and of sample j. *)
Definition noises Dz Dj k (i : bool * 'I_k) w : 'M_(d i.2.+1, d i.2) :=
  if i.1 then Dz w i.2 else Dj w i.2.
Definition independent_noises Dz Dj k :=
  independent P (T := fun i : bool * 'I_k => [eqType of 'M[R]_(d i.2.+1, d i.2)]) (@noises Dz Dj k).
Definition centred_noises Dz Dj := forall t, average P (Dz ^~ t) = 0 /\ average P (Dj ^~ t) = 0.
(* The mean of D^T D. *)
Definition energy D t := average P (fun w => (D w t)^T *m D w t).
End Noisy.

(** The variance of a similarity of fixed last gradients, under independent noise of mean zero in the
    Jacobians; its mean; and the mean for a sample compared with itself. *)
(* Implements: jacobian-noise-variance *)
Definition noise_variance := forall (R : realFieldType) (W : finType) (P : law R W) d
    (B : forall k, 'M[R]_(d k.+1, d k))
    (Dz Dj : W -> forall k, 'M[R]_(d k.+1, d k)) (gz gj : 'cV[R]_(d 0%N)) k,
  (* the $\Delta J$ are independent over layers and over the two samples *) independent_noises P Dz Dj k ->
  (* $\E \Delta J = 0$ *) centred_noises P Dz Dj ->
  let A := operator B k in let u := A *m gz in let w := A *m gj in
  let hz := lowered B Dz k gz in let hj := lowered B Dj k gj in
  let Sz := covariance P hz in let Sj := covariance P hj in
  [/\ var P (fun x => dot (hz x) (hj x)) = dot u (Sj *m u) + dot w (Sz *m w) + \tr (Sz *m Sj),
      mean P (fun x => dot (hz x) (hj x)) = dot gz (A^T *m A *m gj)
    & mean P (fun x => dot (hz x) (hz x)) = dot gz (A^T *m A *m gz) + \tr Sz].

(* V^2 - R^2. *)
Definition noise_factor (R : ringType) (rho sigma : nat -> R) k :=
  (\prod_(t < k) (rho t ^+ 2 + sigma t ^+ 2)) ^+ 2 - (\prod_(t < k) rho t ^+ 2) ^+ 2.

(** The bound on this variance, k layers below the last. rho t is at least the spectral norm of the mean
    Jacobian, sigma t ^ 2 at least that of the mean of D^T D. The factor grows exponentially with depth where
    rho is 1, and decays geometrically where rho^2 + sigma^2 is a constant below 1. *)
(* Implements: jacobian-noise-bound *)
Definition noise_bound := forall (R : rcfType) (W : finType) (P : law R W) d
    (B : forall k, 'M[R]_(d k.+1, d k))
    (Dz Dj : W -> forall k, 'M[R]_(d k.+1, d k)) (gz gj : 'cV[R]_(d 0%N)) k (rho sigma : nat -> R),
  (* the $\Delta J$ are independent over layers and over the two samples *) independent_noises P Dz Dj k ->
  (* $\E \Delta J = 0$ *) centred_noises P Dz Dj ->
  (* meaning *) (forall t, gain_le (B t) (rho t)) ->
  (* meaning *)
  (forall t, gain_le (energy P Dz t) (sigma t ^+ 2) /\ gain_le (energy P Dj t) (sigma t ^+ 2)) ->
  var P (fun x => dot (lowered B Dz k gz x) (lowered B Dj k gj x))
  <= noise_factor rho sigma k * norm gz ^+ 2 * norm gj ^+ 2 /\
  forall r s, noise_factor (fun=> 1) (fun=> s) k = (1 + s ^+ 2) ^+ (2 * k) - 1 /\
              noise_factor (fun=> r) (fun=> s) k <= (r ^+ 2 + s ^+ 2) ^+ (2 * k) :> R.

(** The bound is attained by every chain of scalar layers. *)
(* Implements: jacobian-noise-bound *)
Definition noise_bound_attained := forall (R : rcfType) (W : finType) (P : law R W) (b : nat -> R)
    (Dz Dj : W -> nat -> 'M[R]_1) (gz gj : 'cV[R]_1) k (sigma : nat -> R),
  (* the $\Delta J$ are independent over layers and over the two samples *)
  independent_noises P (d := fun=> 1%N) Dz Dj k ->
  (* $\E \Delta J = 0$ *) centred_noises P (d := fun=> 1%N) Dz Dj ->
  (* meaning *) (forall t, energy P (d := fun=> 1%N) Dz t = (sigma t ^+ 2)%:M /\
                           energy P (d := fun=> 1%N) Dj t = (sigma t ^+ 2)%:M) ->
  let B t := (b t)%:M in
  var P (fun x => dot (lowered (d := fun=> 1%N) B Dz k gz x) (lowered (d := fun=> 1%N) B Dj k gj x))
  = noise_factor b sigma k * norm gz ^+ 2 * norm gj ^+ 2.

(* The printed sum over layers; e t is the mean squared Frobenius norm of the noise t layers below the
   last. *)
Definition printed_sum (R : ringType) (rho e : nat -> R) k :=
  \sum_(t < k) gains rho t.+1 k ^+ 2 * gains rho 0 t ^+ 2 * e t.

(** Without the cross terms no kappa makes the printed bound true: for two layers of independent random signs
    the variance is 1, the last similarity is fixed, and what kappa multiplies is 0. *)
(* Implements: app-var-beta *)
Definition no_schematic_factor := forall R : rcfType, exists (W : finType) (P : law R W)
    (Dz Dj : W -> nat -> 'M[R]_1),
  let B := fun=> 0 : 'M[R]_1 in let rho := fun=> 0 : R in let A := operator (d := fun=> 1%N) B 2 in
  let M := A^T *m A in let rest := M - (\tr M)%:M in
  [/\ independent_noises P (d := fun=> 1%N) Dz Dj 2, centred_noises P (d := fun=> 1%N) Dz Dj,
      forall t, gain_le (B t) (rho t),
      forall t, mean P (fun w => dot (Dz w t) (Dz w t)) = 1 /\ mean P (fun w => dot (Dj w t) (Dj w t)) = 1
    & var P (fun w => dot (lowered (d := fun=> 1%N) B Dz 2 1%:M w) (lowered (d := fun=> 1%N) B Dj 2 1%:M w))
      = 1 /\
      dot rest rest + printed_sum rho (fun=> 1) 2 = 0].

(* The gradients of x come down through gates p and weights M: g^(l) = Diag(p) M^T g^(l+1). *)
Definition gated (R : ringType) d L (M : forall l, 'M[R]_(d l.+1, d l)) (p : forall l, 'rV[R]_(d l))
    (x : trace R d) :=
  forall l, (l < L)%N -> grad x l = diag_mx (p l) *m (M l)^T *m grad x l.+1.

(* Columns have the given squared norms q and no preferred direction: the mean of c c^T is a multiple of the
   identity, of trace q. Uniform directions have this. Layers are independent; columns of one layer need not
   be. *)
Definition isotropic (R : numFieldType) (W : finType) (P : law R W) d L
    (M : W -> forall l, 'M[R]_(d l.+1, d l))
    (q : forall l, 'I_(d l) -> R) :=
  [/\ forall w l i, dot (col i (M w l)) (col i (M w l)) = q l i,
      forall l i, (l < L)%N -> average P (fun w => col i (M w l) *m (col i (M w l))^T)
        = (q l i / (d l.+1)%:R)%:M
    & independent P (T := fun t : 'I_L => [eqType of 'M[R]_(d t.+1, d t)]) (fun t w => M w t)].

(* Gamma of layer l, for gates p and r. *)
Definition gate_factor (R : fieldType) (d : nat -> nat) (q : forall l, 'I_(d l) -> R)
    (p r : forall l, 'rV[R]_(d l)) l :=
  (\sum_i q l i * p l 0 i * r l 0 i) / (d l.+1)%:R.

(** Gate-corrected LAI is unbiased for Ghost, for one pair and over all validation samples. *)
(* Implements: gate-corrected *)
Definition gate_corrected := forall (R : realFieldType) (W : finType) (P : law R W) d n L
    (M : W -> forall l, 'M[R]_(d l.+1, d l))
    (a : 'I_n -> forall l, 'cV[R]_(d l)) (aj : forall l, 'cV[R]_(d l))
      (g : W -> 'I_n -> forall l, 'cV[R]_(d l))
    (gj : W -> forall l, 'cV[R]_(d l)) (p : 'I_n -> forall l, 'rV[R]_(d l)) (pj : forall l, 'rV[R]_(d l))
    (q : forall l, 'I_(d l) -> R) (last : 'I_n -> 'cV[R]_(d L)) (lastj : 'cV[R]_(d L)),
  let V w z := Trace (a z) (g w z) in let j w := Trace aj (gj w) in
  (* a chain of layers *) (forall w, (forall z, gated L (M w) (p z) (V w z)) /\ gated L (M w) pj (j w)) ->
  (* given activations, gates, column norms **and the last gradients**, the directions of the columns are
     uniform and independent over layers *)
  ((forall w, (forall z, g w z L = last z) /\ gj w L = lastj) /\ isotropic P L M q) ->
  let corrected z := dot (last z) lastj *
    \sum_(1 <= l < L.+1) dot (a z l.-1) (aj l.-1) * \prod_(l <= t < L) gate_factor q (p z) pj t in
  (forall z, mean P (fun w => \sum_(1 <= l < L.+1) alpha (V w z) (j w) l * beta (V w z) (j w) l)
    = corrected z) /\
  mean P (fun w => ghost L (V w) (j w)) = \sum_z corrected z.

(* Independent entries with the first four moments of a normal law of mean zero and variance v. *)
Definition gaussian_moments (R : realFieldType) (W : finType) (P : law R W) m n (M : W -> 'M[R]_(m, n)) v :=
  (forall i k, [/\ mean P (fun w => M w i k) = 0, mean P (fun w => M w i k ^+ 2) = v,
                   mean P (fun w => M w i k ^+ 3) = 0 & mean P (fun w => M w i k ^+ 4) = 3%:R * v ^+ 2]) /\
  independent P (T := fun=> R) (fun (i : 'I_m * 'I_n) w => M w i.1 i.2).

(** Mean and variance of a similarity one layer further down, over random weights of the layer, for fixed
    gradients above and fixed gates; bz i and bj i say whether unit i is active for sample z and for sample j.
    The weights need the moments of a normal law up to the fourth, not the law itself. The last part is the
    relative variance. *)
(* Implements: random-weights-variance *)
Definition random_weights_variance := forall (R : rcfType) (W : finType) (P : law R W) m n
    (M : W -> 'M[R]_(m, n)) v
    (hz hj : 'cV[R]_m) (bz bj : 'I_n -> bool),
  (* weights are independent Gaussians of mean zero and variance $v$ *) gaussian_moments P M v ->
  let gate (b : 'I_n -> bool) := diag_mx (\row_i (b i)%:R) in
  let below w := dot (gate bz *m (M w)^T *m hz) (gate bj *m (M w)^T *m hj) in
  let both := (\sum_i (bz i && bj i))%N in let above := dot hz hj in
  [/\ mean P below = both%:R * v * above,
      var P below = both%:R * v ^+ 2 * (norm hz ^+ 2 * norm hj ^+ 2 + above ^+ 2)
    & (* meaning *) mean P below != 0 ->
      var P below / mean P below ^+ 2 = (1 + 1 / cos hz hj ^+ 2) / both%:R].
